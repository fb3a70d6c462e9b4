#include "system/streams.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "core/check.h"
#include "system/files.h"

namespace sinter {

void set_up_streams() {
  // What a caller closed can still not be written: a table that nobody can see is an error, as it was.
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
  // Then writing fails, and whoever writes decides what that means.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f`
}

void write_stdout(std::string_view text) {
  if (written(STDOUT_FILENO, text)) return;
  int error = errno;
  if (error == EPIPE) {
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  fail_with(ErrorKind::other, "stdout: writing failed ({})", std::strerror(error));
}

void say(std::string_view text) noexcept { written(STDERR_FILENO, text); }

}  // namespace sinter
