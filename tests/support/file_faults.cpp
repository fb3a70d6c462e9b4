#include "support/file_faults.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace sinter {
namespace {

constexpr int dies = -1;
struct {
  std::atomic<bool> on = false;
  std::atomic<int> calls = 0;
  int first = INT_MAX, last = INT_MAX, error = 0;

  std::mutex mutex;
  std::set<int> written;  // what is open and was not synced since
  bool lost = false;      // one of these was closed
  bool renamed = false;
  int early = 0;
} faults;

bool is_folder(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 && S_ISDIR(s.st_mode);
}

void note_write(int fd) {
  std::lock_guard lock(faults.mutex);
  faults.written.insert(fd);
}
void note_sync(int fd) {
  std::lock_guard lock(faults.mutex);
  if (is_folder(fd)) faults.renamed = false;
  else faults.written.erase(fd);
}
void note_close(int fd) {
  std::lock_guard lock(faults.mutex);
  faults.lost |= faults.written.erase(fd) > 0;
}
void note_rename() {
  std::lock_guard lock(faults.mutex);
  faults.early += faults.renamed || faults.lost || !faults.written.empty();
  faults.renamed = true;
}

// Whether the call is to fail, with errno set. `half`: what is done of it before the process dies; where there is such
// a thing, the call can also be interrupted.
template <class F> bool fails(const F& half, bool can_be_interrupted = true) {
  if (!faults.on) return false;
  int call = ++faults.calls;
  thread_local bool interrupted = false;
  if (faults.error == EINTR && can_be_interrupted && (interrupted = !interrupted)) return errno = EINTR, true;
  if (call < faults.first || call > faults.last) return false;
  if (faults.error == dies) {
    half();
    _exit(FileFaults::died);
  }
  errno = faults.error;
  return true;
}
bool fails() {
  return fails([] {}, false);
}

}  // namespace

FileFaults::FileFaults(int first, int last, int error) {
  faults.first = first, faults.last = last, faults.error = error;
  faults.calls = faults.early = 0;
  faults.written.clear(), faults.lost = faults.renamed = false;
  faults.on = true;
}
FileFaults::~FileFaults() { faults.on = false; }
FileFaults FileFaults::count() { return {INT_MAX, INT_MAX, 0}; }
FileFaults FileFaults::die_at(int call) { return {call, call, dies}; }
FileFaults FileFaults::fail_from(int call, int error) { return {call, INT_MAX, error}; }
FileFaults FileFaults::interrupt() { return {INT_MAX, INT_MAX, EINTR}; }
int FileFaults::calls() const { return faults.calls; }
int FileFaults::names_before_contents() const {
  std::lock_guard lock(faults.mutex);
  return faults.early + faults.renamed;
}

}  // namespace sinter

extern "C" {

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return flags & O_CREAT && sinter::fails() ? -1 : __real_open(path, flags, mode);
}

ssize_t __real_write(int fd, const void* bytes, size_t n);
ssize_t __wrap_write(int fd, const void* bytes, size_t n);
ssize_t __wrap_write(int fd, const void* bytes, size_t n) {
  auto half = [&] { [[maybe_unused]] ssize_t part = __real_write(fd, bytes, n / 2); };
  if (sinter::fails(half)) return -1;
  if (sinter::faults.on) sinter::note_write(fd);
  return __real_write(fd, bytes, n);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  if (sinter::fails([] {})) return -1;
  sinter::note_sync(fd);
  return __real_fsync(fd);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) {
  if (sinter::faults.on) sinter::note_close(fd);
  return __real_close(fd);
}

int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  if (sinter::fails()) return -1;
  sinter::note_rename();
  return __real_rename(from, to);
}

#define WRAPPED(name, parameters, arguments) \
  int __real_##name parameters;              \
  int __wrap_##name parameters;              \
  int __wrap_##name parameters { return sinter::fails() ? -1 : __real_##name arguments; }
WRAPPED(ftruncate, (int fd, off_t size), (fd, size))
WRAPPED(mkdir, (const char* path, mode_t mode), (path, mode))
WRAPPED(unlink, (const char* path), (path))
WRAPPED(rmdir, (const char* path), (path))
}
