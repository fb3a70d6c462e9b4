// Files that people keep: each appears whole, under its name, or not at all.
#pragma once
#include <string>
#include <string_view>

namespace sinter {

// Refuses a place that cannot be written to, before any work; `flag` is what named it.
void check_writable(const char* flag, const std::string& path);

// Whether what was written also survives a power failure. That waits for the disk, so caches do without.
enum class Durable { no, yes };
// Writes a temporary beside the target and renames it. Whatever fails, the old file is as it was and nothing else is
// left. Where a link points is replaced, not the link; special files are written to as they are.
void write_file(const std::string& path, std::string_view text, Durable durable = Durable::yes);

// An open file.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool close();  // some file systems say only here that it could not be written

 private:
  int fd_;
};
bool written(int fd, std::string_view text) noexcept;  // all of it, to what is open; otherwise errno says why not
bool synced(int fd);                                   // it survives a power failure, where the file system can say so
// What was made, renamed or removed in a folder survives one only if the folder does. Otherwise errno says why not.
bool synced_folder(const std::string& folder);

bool is_special(const std::string& path);       // a device, a pipe, or this process's stdout or stderr
std::string resolved(const std::string& path);  // the file that is meant, where path is a link to it

}  // namespace sinter
