#include "system/process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"
#include "system/signals.h"

extern char** environ;

namespace sinter {
namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The child puts its own in place of 0, 1 and 2. Pipes take those numbers if this process was started with one of them
// closed.
int beyond_standard(int fd) {
  if (fd > STDERR_FILENO) return fd;
  int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return other;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_with(ErrorKind::other, "cannot make a pipe ({})", std::strerror(errno));
    read = beyond_standard(ends[0]), write = beyond_standard(ends[1]);
  }
};

using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

std::vector<std::string> environment_with(const Changes& changes) {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    std::string_view entry = *e;
    bool changed = std::any_of(changes.begin(), changes.end(),
                               [&](const auto& c) { return entry.substr(0, entry.find('=')) == c.first; });
    if (!changed) all.emplace_back(entry);
  }
  for (const auto& [name, value] : changes)
    if (value) all.push_back(name + "=" + *value);
  return all;
}

// Where a program of this name may be, as a shell would look for it.
std::vector<std::string> places_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return {program};
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
  std::vector<std::string> places;
  for (size_t begin = 0; begin <= folders.size();) {
    size_t end = std::min(folders.find(':', begin), folders.size());
    std::string folder = folders.substr(begin, end - begin);
    places.push_back((folder.empty() ? "." : folder) + "/" + program);
    begin = end + 1;
  }
  return places;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& t : texts) all.push_back(const_cast<char*>(t.c_str()));
  all.push_back(nullptr);
  return all;
}

// What the child is to become. All of it is made before the fork: in the child of a program with threads any lock may
// be held for ever, the allocator's too, so that only async-signal-safe calls are allowed.
struct Image {
  std::vector<char*> places, argv, envp;
  pid_t parent;
  int nothing;  // /dev/null
  int input;    // that, or a pipe
  int output;   // -1: ours
  int errors;   // likewise
  bool own_group;
  int failure;  // where errno goes if it cannot be
};

[[noreturn]] void become(const Image& image) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (image.own_group) setpgid(0, 0);
  if (getppid() != image.parent) _exit(127);  // the parent ended before we had asked
  // What we ignore or hold back, it should not: it could not be stopped.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s : {SIGTERM, SIGCHLD, SIGPIPE, SIGXFSZ}) signal(s, SIG_DFL);
  bool ready = dup2(image.input, STDIN_FILENO) >= 0 && (image.output < 0 || dup2(image.output, STDOUT_FILENO) >= 0) &&
               (image.errors < 0 || dup2(image.errors, STDERR_FILENO) >= 0);
  int error = ready ? ENOENT : errno;
  for (size_t i = 0; ready && image.places[i]; ++i) {
    execve(image.places[i], image.argv.data(), image.envp.data());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    if (error != EACCES) break;  // a later folder may have one we may run
  }
  [[maybe_unused]] ssize_t told = write(image.failure, &error, sizeof error);
  _exit(127);
}

// errno of a child that could not become the program; 0 once it has, which closes the pipe.
int failure_of(int fd) {
  int error = 0;
  while (read(fd, &error, sizeof error) < 0 && errno == EINTR) {
  }
  return error;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  check(!arguments.empty(), "a process needs the name of a program");
  std::vector<std::string> places = places_of(options.program.empty() ? arguments[0] : options.program),
                           environment = environment_with(options.environment);
  Pipe failure;
  Image image{pointers(places),  pointers(arguments), pointers(environment), getpid(), -1, -1, -1, -1,
              options.own_group, failure.write};
  image.nothing = image.input = beyond_standard(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (options.quiet) image.errors = image.nothing;
  if (!options.input.empty()) {
    check(options.input.size() <= PIPE_BUF, "a process gets {} bytes of input at most", PIPE_BUF);
    Pipe input;  // all of it fits into the pipe
    input_ = input.write, image.input = input.read;
    check(write(input_, options.input.data(), options.input.size()) == ssize_t(options.input.size()),
          "cannot write to a pipe ({})", std::strerror(errno));
  }
  if (options.collect_output) {
    Pipe output;
    output_ = output.read, image.output = output.write;
    if (options.collect_errors) image.errors = output.write;
    fcntl(output_, F_SETFL, O_NONBLOCK);
  }
  pid_ = fork();
  int fork_error = errno;
  if (pid_ == 0) become(image);
  close(failure.write);
  close(image.nothing);
  if (input_ >= 0) close(image.input);
  if (image.output >= 0) close(image.output);
  int error = pid_ < 0 ? fork_error : failure_of(failure.read);
  close(failure.read);
  own_group_ = options.own_group;
  if (error == 0) return;
  if (pid_ > 0)
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  pid_ = 0, ended_ = true;
  result_ = {127, std::strerror(error)};
}

ChildProcess::~ChildProcess() {
  if (!ended_ || own_group_) kill(SIGKILL);
  if (!ended_) wait();
  if (output_ >= 0) close(output_);
  close_input();
}

void ChildProcess::close_input() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

bool ChildProcess::read_output() {
  char buffer[4096];
  for (;;) {
    ssize_t n = read(output_, buffer, sizeof buffer);
    if (n > 0) result_.output.append(buffer, size_t(n));
    else if (n == 0) return false;
    else if (errno != EINTR) return errno == EAGAIN;
  }
}

std::string ChildProcess::take_output() {
  if (output_ >= 0 && !read_output()) close(std::exchange(output_, -1));
  return std::exchange(result_.output, "");
}

bool ChildProcess::has_ended() {
  int status = 0;
  if (ended_) return true;
  pid_t got = waitpid(pid_, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  if (output_ >= 0) read_output();
  // Where SIGCHLD is ignored, which a program inherits, the kernel keeps no status of a child that has gone.
  result_.exit_code = got < 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_ = true;
}

std::optional<ProcessResult> ChildProcess::wait(double timeout_s) {
  // Output wakes us, and so does its end, which is nearly always the child's. Only in between do we look now and then:
  // a child may close its stdout and stay, or leave it open to children of its own.
  constexpr double first_look_s = 1e-3, longest_look_s = 0.05;
  double end = now_s() + timeout_s, look = first_look_s;
  while (!has_ended()) {
    double left = end - now_s();
    if (left <= 0) return {};
    pollfd output{output_, POLLIN, 0};  // a negative one is left out
    int ms = int(std::ceil(1e3 * std::min(left, look)));
    if (poll(&output, 1, ms) <= 0) {
      look = std::min(2 * look, longest_look_s);
    } else if (!read_output()) {
      close(std::exchange(output_, -1));
      look = first_look_s;
    }
  }
  return result_;
}

ProcessResult ChildProcess::wait() { return *wait(forever); }

void ChildProcess::kill(int signal) {
  if (own_group_ && pid_ > 0) ::kill(-pid_, signal);
  else if (!has_ended()) ::kill(pid_, signal);
}

ProcessResult ChildProcess::stop(double grace_s) {
  kill(SIGTERM);
  if (std::optional<ProcessResult> result = wait(grace_s)) return *result;
  kill(SIGKILL);
  return wait();
}

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  constexpr double look_s = 0.1;
  ChildProcess child(arguments, options);
  double end = options.timeout_s > 0 ? now_s() + options.timeout_s : forever;
  for (;;) {
    double left = end - now_s();
    if (auto result = child.wait(options.until_interrupted ? std::min(left, look_s) : left)) return *result;
    if (options.until_interrupted && interrupted()) return child.stop(options.grace_s);
    if (now_s() < end) continue;
    ProcessResult result = child.stop(options.grace_s);
    result.timed_out = true;
    return result;
  }
}

std::string own_executable() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  check(!error, "cannot find this program's own file (/proc/self/exe), which a fresh process needs");
  return path;
}

}  // namespace sinter
