#include "system/files.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/check.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_writing(const std::string& path, const char* what) {
  fail_with(ErrorKind::other, "{}: {} ({})", path, what, std::strerror(errno));
}

void write_all(int fd, std::string_view text, const std::string& path) {
  if (!written(fd, text)) fail_writing(path, "writing failed");
}

// A new file beside the target, which takes its place or vanishes. Other threads and processes may make theirs at the
// same time.
class Temporary {
 public:
  explicit Temporary(const std::string& target) : target_(target), file_(open_new()) {}
  ~Temporary() {
    if (exists()) unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  bool exists() const { return !path_.empty(); }  // otherwise errno says why not
  void write(std::string_view text, Durable durable, const std::string& name) {
    write_all(file_.get(), text, name);
    if (durable == Durable::yes && !synced(file_.get())) fail_writing(name, "writing failed");
    if (!file_.close()) fail_writing(name, "writing failed");
  }
  void take_its_place(const std::string& name) {
    if (rename(path_.c_str(), target_.c_str()) != 0) fail_writing(name, "cannot be replaced");
    path_.clear();
  }

 private:
  int open_new() {
    static std::atomic<unsigned> count;
    for (;;) {
      std::string path = fmt::format("{}.tmp{}.{}", target_, getpid(), count++);
      int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
      if (fd < 0 && errno == EEXIST) continue;  // of a process that had our number and was killed
      if (fd >= 0) path_ = path;
      if (struct stat old; fd >= 0 && stat(target_.c_str(), &old) == 0) [[maybe_unused]]
        int kept = fchmod(fd, old.st_mode & 07777);  // as far as we may
      return fd;
    }
  }

  std::string target_, path_;
  Descriptor file_;
};

// stdout and stderr, which may lead to a file: replacing that would lose what else was and will be written there.
int standard_stream(const std::string& path) {
  return path == "/dev/stdout" ? STDOUT_FILENO : path == "/dev/stderr" ? STDERR_FILENO : -1;
}

void write_special(const std::string& path, std::string_view text) {
  if (int stream = standard_stream(path); stream >= 0) return write_all(stream, text, path);
  Descriptor fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  check(fd.get() >= 0, "{}: cannot be written ({})", path, std::strerror(errno));
  write_all(fd.get(), text, path);
  if (!fd.close()) fail_writing(path, "writing failed");
}

}  // namespace

bool is_special(const std::string& path) {
  struct stat s;
  return standard_stream(path) >= 0 || (stat(path.c_str(), &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode));
}

std::string resolved(const std::string& path) {
  std::error_code error;
  if (fs::path whole = fs::canonical(path, error); !error) return whole.string();
  fs::path p = path;  // there is no such file yet, but perhaps links that lead to it
  for (int links = 0; links < 40 && fs::is_symlink(p, error); ++links) p = p.parent_path() / fs::read_symlink(p, error);
  return p.string();
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty() || path == "-" || is_special(path)) return;
  std::error_code unknown;  // making a file there will say
  check(!fs::is_directory(path, unknown), "{} {}: is a folder; name a file in it", flag, path);
  Temporary file(resolved(path));
  check(file.exists(), "{} {}: cannot be written ({}); choose a folder that exists and that you may write to", flag,
        path, std::strerror(errno));
}

void write_file(const std::string& path, std::string_view text, Durable durable) {
  if (is_special(path)) return write_special(path, text);
  std::string target = resolved(path);
  {
    Temporary file(target);
    check(file.exists(), "{}: cannot be written ({})", path, std::strerror(errno));
    file.write(text, durable, path);
    file.take_its_place(path);
  }
  if (durable == Durable::yes && !synced_folder(fs::path(target).parent_path()))
    fail_writing(path, "was written, but its folder may not have been");
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// Linux has closed it also where it says EINTR.
bool Descriptor::close() { return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR; }

// Some file systems have no such thing for a file or, more often, for a folder; that is no error.
bool synced(int fd) {
  while (fsync(fd) != 0)
    if (errno != EINTR) return errno == EINVAL || errno == ENOTSUP;
  return true;
}

// One that may not be opened cannot be asked for that.
bool synced_folder(const std::string& folder) {
  Descriptor fd(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.get() < 0 || synced(fd.get());
}

bool written(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) text.remove_prefix(size_t(n));
    else if (errno == EAGAIN) {  // whoever shares a terminal or a pipe with us may have made it non-blocking
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace sinter
