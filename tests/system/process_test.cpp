// Other processes: what they are given, what comes back, and that none is left behind.
#include "system/process.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/values.h"
#include "system/signals.h"

namespace sinter {
namespace {

ProcessResult shell(const std::string& script, const ProcessOptions& options = {}) {
  return run_process({"sh", "-c", script}, options);
}

bool exists(pid_t pid) { return kill(pid, 0) == 0; }

TEST(Process, GivesBackOutputAndExitCode) {
  ProcessResult r = shell("echo one; echo two; exit 7");
  EXPECT_EQ(r.output, "one\ntwo\n");
  EXPECT_EQ(r.exit_code, 7);
  EXPECT_FALSE(r.timed_out);
  EXPECT_EQ(shell("kill -KILL $$").exit_code, 128 + SIGKILL);
  EXPECT_EQ(run_process({"echo", "two words", ""}).output, "two words \n");
  EXPECT_EQ(run_process({"cat"}).output, "") << "standard input is empty";
}

TEST(Process, SaysWhyOneCannotBeStarted) {
  ProcessResult r = run_process({"no-such-program-of-sinter"});
  EXPECT_EQ(r.exit_code, 127);
  EXPECT_TRUE(mentions(r.output, {"No such file"})) << r.output;
  r = run_process({"/etc/passwd"});
  EXPECT_EQ(r.exit_code, 127);
  EXPECT_TRUE(mentions(r.output, {"Permission denied"})) << r.output;
  ChildProcess child({"/no/such/program"});
  EXPECT_EQ(child.pid(), 0);
  child.kill(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 127);
}

TEST(Process, MayWriteMoreThanAPipeHolds) {
  ProcessResult r = shell("head -c 3000000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(r.output, std::string(3000000, 'x'));
  EXPECT_EQ(r.exit_code, 0);
}

TEST(Process, HasOurEnvironmentAndWhatIsChangedOfIt) {
  setenv("SINTER_TEST_KEPT", "kept", 1);
  setenv("SINTER_TEST_REMOVED", "there", 1);
  setenv("SINTER_TEST_CHANGED", "old", 1);
  ProcessOptions options;
  options.environment = {{"SINTER_TEST_REMOVED", {}}, {"SINTER_TEST_CHANGED", "new=1"}, {"SINTER_TEST_ADDED", ""}};
  const char* script =
      "echo $SINTER_TEST_KEPT ${SINTER_TEST_REMOVED-none} $SINTER_TEST_CHANGED \"<${SINTER_TEST_ADDED-none}>\"";
  EXPECT_EQ(shell(script, options).output, "kept none new=1 <>\n");
  EXPECT_EQ(shell(script).output, "kept there old <none>\n") << "our own stayed as it was";
  for (const char* name : {"SINTER_TEST_KEPT", "SINTER_TEST_REMOVED", "SINTER_TEST_CHANGED"}) unsetenv(name);
}

TEST(Process, IsQuietOrNot) {
  testing::internal::CaptureStderr();
  shell("echo loud >&2");
  ProcessOptions quiet;
  quiet.quiet = true;
  shell("echo quiet >&2", quiet);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "loud\n");
  testing::internal::CaptureStdout();
  ProcessOptions ours;
  ours.collect_output = false;
  EXPECT_EQ(shell("echo ours", ours).output, "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "ours\n");
}

// Begun, and as far as having said what SIGTERM is to do.
class LongRunning : public testing::Test {
 protected:
  void start(const std::string& on_term) {
    std::string mark = (std::filesystem::temp_directory_path() / ("sinter-mark-" + std::to_string(getpid()))).string();
    std::filesystem::remove(mark);
    std::string script = "trap '" + on_term + "' TERM; echo begun; : > " + mark + "; while :; do sleep 0.01; done";
    child_.emplace(std::vector<std::string>{"sh", "-c", script});
    while (!std::filesystem::exists(mark)) ASSERT_FALSE(child_->wait(0.01));
    std::filesystem::remove(mark);
  }
  std::optional<ChildProcess> child_;
};

TEST_F(LongRunning, IsAskedToStop) {
  start("echo asked; exit 3");
  ProcessResult r = child_->stop(600);
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_EQ(r.output, "begun\nasked\n");
}

TEST_F(LongRunning, IsKilledIfItDoesNot) {
  start("");
  ProcessResult r = child_->stop(0.05);
  EXPECT_EQ(r.exit_code, 128 + SIGKILL);
  EXPECT_EQ(r.output, "begun\n");
}

TEST(Process, IsStoppedWhenItsTimeIsOver) {
  ProcessOptions options;
  options.timeout_s = 0.05;
  ProcessResult r = run_process({"sleep", "1000"}, options);
  EXPECT_TRUE(r.timed_out);
  EXPECT_EQ(r.exit_code, 128 + SIGTERM);
}

// It has ended, though a child of its own still holds its standard output.
TEST(Process, IsOverWhenItEndsAndNotWhenItsPipeDoes) {
  ProcessResult r = shell("sleep 1000 & echo $!");
  EXPECT_EQ(r.exit_code, 0);
  pid_t grandchild = pid_t(std::stol(r.output));
  EXPECT_TRUE(exists(grandchild));
  kill(grandchild, SIGKILL);
}

TEST(Process, MayCloseItsOutputAndStay) { EXPECT_EQ(shell("echo text; exec >&-; sleep 0.1; exit 5").exit_code, 5); }

// Ignoring SIGCHLD is inherited; the kernel then forgets how children ended.
TEST(Process, EndsAlsoWhereSigchldIsIgnored) {
  auto before = std::signal(SIGCHLD, SIG_IGN);
  ProcessResult r = shell("echo text; exit 3");
  std::signal(SIGCHLD, before);
  EXPECT_EQ(r.output, "text\n");
  EXPECT_EQ(r.exit_code, 127) << "not known";
}

TEST(Process, CanBeWaitedForLater) {
  ChildProcess child({"sh", "-c", "echo $$; while :; do sleep 0.01; done"});
  EXPECT_TRUE(exists(child.pid()));
  EXPECT_FALSE(child.wait(0.05));
  child.kill(SIGTERM);
  ProcessResult r = child.wait();
  EXPECT_EQ(r.exit_code, 128 + SIGTERM);
  EXPECT_EQ(r.output, std::to_string(child.pid()) + "\n");
  EXPECT_EQ(child.wait(0)->output, r.output) << "asking again";
  child.kill(SIGKILL);  // nobody: the number may be another's by now
}

TEST(Process, AreManyAtOnce) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(
        std::make_unique<ChildProcess>(std::vector<std::string>{"sh", "-c", "exit " + std::to_string(i)}));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(children[size_t(i)]->wait().exit_code, i);
}

TEST(Process, EndsWithTheObjectThatStandsForIt) {
  pid_t pid = 0;
  {
    ChildProcess child({"sleep", "1000"});
    pid = child.pid();
    EXPECT_TRUE(exists(pid));
  }
  EXPECT_FALSE(exists(pid));
}

// The parent is a child of ours that starts one of its own and is killed, so that nothing in it can tidy up. The pipe
// that all of them hold ends when the last of them has.
TEST(Process, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // inherited
  pid_t parent = fork();
  if (parent == 0) {
    ChildProcess child({"sleep", "1000"});
    char ready = 'r';
    if (write(ends[1], &ready, 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ends[1]);
  char text = 0;
  ASSERT_EQ(read(ends[0], &text, 1), 1);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 60000), 1) << "the grandchild lives";
  EXPECT_EQ(read(ends[0], &text, 1), 0);
  close(ends[0]);
}

// Signals that are handled interrupt every call that waits; none of them ends the wait or loses output.
TEST(Process, IsWaitedForThroughSignals) {
  struct sigaction action = {}, before;
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, &before);
  itimerval often{{0, 2000}, {0, 2000}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  ProcessResult r = shell("head -c 300000 /dev/zero | tr '\\0' y; sleep 0.2; echo end; exit 4");
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(r.output, std::string(300000, 'y') + "end\n");
  EXPECT_EQ(r.exit_code, 4);
}

TEST(Process, IsStartedFromAnyThread) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(4);
  for (size_t i = 0; i < outputs.size(); ++i)
    threads.emplace_back([&outputs, i] { outputs[i] = shell("echo " + std::to_string(i)).output; });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], std::to_string(i) + "\n");
}

TEST(Signals, TheFirstSetsAFlagAndTheSecondEndsTheProcess) {
  pid_t child = fork();
  if (child == 0) {
    catch_interrupts();
    raise(SIGINT);
    if (!interrupted()) _exit(1);
    raise(SIGINT);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

}  // namespace
}  // namespace sinter
