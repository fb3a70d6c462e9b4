// Calls that change files (open to create, write, fsync, ftruncate, mkdir, rename, unlink, rmdir) as this program makes
// them, counted from 1 on, all threads together; at a chosen one the process dies, or the call fails. The linker puts
// these in the place of the system's (--wrap).
#pragma once

namespace sinter {

class FileFaults {
 public:
  static FileFaults count();                         // only
  static FileFaults die_at(int call);                // with exit code `died`; a write has done half of its work by then
  static FileFaults fail_from(int call, int error);  // that one and all later ones
  static FileFaults interrupt();                     // every write and fsync, once: it fails with EINTR, then does not
  static constexpr int died = 42;
  ~FileFaults();  // from here on all is well
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;
  int calls() const;  // so far
  // How often something was renamed while a write had no fsync after it yet, or an earlier rename none of a folder: a
  // power failure then could leave the name and not the contents. Asked in the end, a last rename counts too.
  int names_before_contents() const;

 private:
  FileFaults(int first, int last, int error);
};

}  // namespace sinter
