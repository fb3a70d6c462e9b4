#include "system/process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"

extern char** environ;

namespace sinter {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
void on_interrupt(int) { interrupt_seen = 1; }

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, bool quiet) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_with(ErrorKind::other, "cannot make a pipe ({})", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (quiet) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ProcessResult result;
  if (error) {
    close(ends[0]);
    return {127, std::strerror(error)};
  }
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (n > 0) result.output.append(buffer, size_t(n));
    else if (errno != EINTR) break;
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string own_executable() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  check(!error, "cannot find this program's own file (/proc/self/exe), which a fresh process needs");
  return path;
}

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = int(SA_RESETHAND);  // the second Ctrl-C has its usual meaning
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);  // a batch system's way to say the same
}

std::string interrupted_text(size_t finished, size_t all) {
  return "interrupted: " + std::to_string(finished) + " of " + std::to_string(all) + " configurations were finished";
}
bool interrupted() { return interrupt_seen != 0; }

}  // namespace sinter
