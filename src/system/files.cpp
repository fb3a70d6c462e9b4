#include "system/files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

std::string temporary_for(const std::string& path) { return fmt::format("{}.tmp{}", path, getpid()); }

void write_all(int fd, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with(ErrorKind::other, "{}: writing failed ({})", path, std::strerror(errno));
    done += size_t(n);
  }
}

}  // namespace

bool is_special(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

std::string resolved(const std::string& path) {
  std::error_code error;
  fs::path p = fs::canonical(path, error);
  return error ? path : p.string();
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty() || path == "-" || is_special(path)) return;
  check(!fs::is_directory(path), "{} {}: is a folder; name a file in it", flag, path);
  std::string temporary = temporary_for(resolved(path));
  int fd = open(temporary.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  check(fd >= 0, "{} {}: cannot be written ({}); choose a folder that exists and that you may write to", flag, path,
        std::strerror(errno));
  close(fd);
  unlink(temporary.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  bool special = is_special(path);
  std::string target = special ? path : resolved(path), temporary = special ? path : temporary_for(target);
  int fd = open(temporary.c_str(), (special ? 0 : O_CREAT | O_TRUNC) | O_WRONLY | O_CLOEXEC, 0644);
  check(fd >= 0, "{}: cannot be written ({})", path, std::strerror(errno));
  try {
    write_all(fd, text, path);
  } catch (...) {
    close(fd);
    if (!special) unlink(temporary.c_str());
    throw;
  }
  close(fd);
  if (!special && rename(temporary.c_str(), target.c_str()) != 0)
    fail_with(ErrorKind::other, "{}: cannot be replaced ({})", path, std::strerror(errno));
}

void write_stdout(const std::string& text) { write_all(STDOUT_FILENO, text, "stdout"); }

}  // namespace sinter
