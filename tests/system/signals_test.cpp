// Being interrupted, each time in a process of its own: the flag stays.
#include "system/signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sinter {
namespace {

// How a process that catches interruptions ends: 128 + the signal that ended it, 1 if it has seen one, otherwise 0.
int after(int signal_number, void (*disposition)(int), int times = 1) {
  pid_t child = fork();
  if (child == 0) {
    signal(signal_number, disposition);
    catch_interrupts();
    for (int i = 0; i < times; ++i) raise(signal_number);
    _exit(interrupted() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Interruption, IsAFlagOnceAndTheEndTwice) {
  for (int s : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(after(s, SIG_DFL), 1) << s;
    EXPECT_EQ(after(s, SIG_DFL, 2), 128 + s) << s;
  }
}

TEST(Interruption, IsNotALostTerminalUnderNohup) { EXPECT_EQ(after(SIGHUP, SIG_IGN, 2), 0); }

}  // namespace
}  // namespace sinter
