#include "train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "system/checksum.h"

namespace sinter {
namespace {

constexpr const char *saving_prefix = ".saving_", *removing_prefix = ".removing_", *step_prefix = "step_";

void check_done(bool done, const std::string& path, const char* what) {
  if (!done) fail_with(ErrorKind::other, "{}: {} ({})", path, what, std::strerror(errno));
}

std::string name_of_step(int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

// The step of a checkpoint's folder; nothing for other names.
std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = -1;
  if (std::sscanf(name.c_str(), "step_%ld", &step) != 1 || step < 0 || name != name_of_step(step)) return {};
  return step;
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  DIR* d = opendir(dir.c_str());
  if (!d) return names;
  while (const dirent* e = readdir(d))
    if (std::string name = e->d_name; name != "." && name != "..") names.push_back(name);
  closedir(d);
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const std::string& path) {
  struct stat s;
  return lstat(path.c_str(), &s) == 0;
}

// A folder of files. What cannot be removed stays, and is tried again when the next run begins.
void remove_folder(const std::string& path) {
  for (const std::string& name : names_in(path)) unlink((path + "/" + name).c_str());
  rmdir(path.c_str());
}

// "step_00000100 0123456789abcdef\n"
struct Pointer {
  std::string name;
  uint64_t checksum = 0;
  std::string text() const { return fmt::format("{} {}\n", name, checksum_text(checksum)); }
};

std::optional<Pointer> read_pointer(const std::string& dir) {
  std::string path = dir + "/latest";
  if (!exists(path)) return {};
  std::string text = json_text_of(path);
  Pointer p{text.substr(0, text.find(' ')), 0};
  size_t digits = p.name.size() + 1;
  if (text.size() > digits) p.checksum = std::strtoull(text.c_str() + digits, nullptr, 16);
  check(step_of(p.name) && text == p.text(),
        "{}: is damaged; it should hold the name of a checkpoint's folder beside it and the checksum of its manifest. "
        "If you know which checkpoint is good, remove this file and the folders of newer ones",
        path);
  return p;
}

CheckpointInfo read_info(const std::string& dir, const Pointer* pointer, const std::string& name) {
  std::string folder = dir + "/" + name, path = folder + "/manifest.json";
  if (pointer)
    check(exists(path), "{}/latest names {}, but there is no {}; if an older checkpoint is good, remove that file", dir,
          name, path);
  ManifestText text = read_manifest_text(path);
  check(!pointer || text.checksum == pointer->checksum,
        "{}: is not the manifest that {}/latest names: its checksum is {}, not {}", path, dir,
        checksum_text(text.checksum), checksum_text(pointer ? pointer->checksum : 0));
  Manifest m = parse_manifest(text, path);
  check(step_of(name) == m.step, "{}: is of step {}; its folder has another's name", path, m.step);
  return {folder, m.step, std::move(m.config)};
}

// Of the checkpoints in the folder, oldest first.
std::vector<int64_t> steps_in(const std::string& dir) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(dir))
    if (auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

std::string file_of_rank(int rank) { return fmt::format("rank_{:04}.safetensors", rank); }

// Without `latest` the first save ended before it was written, or somebody removed it: the newest folder is whole.
std::optional<CheckpointInfo> latest_checkpoint(const std::string& dir) {
  if (auto pointer = read_pointer(dir)) return read_info(dir, &*pointer, pointer->name);
  std::vector<int64_t> steps = steps_in(dir);
  if (steps.empty()) return {};
  return read_info(dir, nullptr, name_of_step(steps.back()));
}

FolderLock::FolderLock(const std::string& dir)
    : file_([&] {
        if (mkdir(dir.c_str(), 0777) != 0)
          check(errno == EEXIST, "{}: cannot be made ({}); name a folder whose parent exists and may be written to",
                dir, std::strerror(errno));
        return open((dir + "/.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
      }()) {
  check(file_.get() >= 0, "{}: no checkpoint can be written there ({}); choose a folder that you may write to", dir,
        std::strerror(errno));
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    char who[256] = {};
    check(errno == EWOULDBLOCK, "{}/.lock: cannot be locked ({})", dir, std::strerror(errno));
    [[maybe_unused]] ssize_t n = pread(file_.get(), who, sizeof(who) - 1, 0);
    fail_with(ErrorKind::usage,
              "{}: another run writes its checkpoints there ({}); wait for its end, or choose another "
              "folder",
              dir, *who ? who : "it does not say which");
  }
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  std::string me = fmt::format("process {} on {}", getpid(), host);
  check(ftruncate(file_.get(), 0) == 0 && written(file_.get(), me),
        "{}/.lock: cannot be written ({}); checkpoints could "
        "not be either",
        dir, std::strerror(errno));
}

std::string CheckpointFolder::saving(int64_t step) const {
  return dir_ + "/" + saving_prefix + name_of_step(step) + "." + token_;
}

void CheckpointFolder::remove_stale() const {
  for (const std::string& name : names_in(dir_)) {
    if (name.starts_with(saving_prefix) || name.starts_with(removing_prefix)) remove_folder(dir_ + "/" + name);
    if (name.starts_with("latest.tmp")) unlink((dir_ + "/" + name).c_str());
  }
}

std::string CheckpointFolder::begin(int64_t step, int rank) const {
  std::string path = saving(step), file = path + "/" + file_of_rank(rank);
  check_done(mkdir(path.c_str(), 0777) == 0 || errno == EEXIST, path, "cannot be made");
  unlink(file.c_str());  // of a save that failed, and could not remove it
  return file;
}

void CheckpointFolder::give_up(int64_t step) const { remove_folder(saving(step)); }

void CheckpointFolder::commit(const Manifest& m) const {
  std::string from = saving(m.step), name = name_of_step(m.step), to = dir_ + "/" + name;
  for (const Manifest::File& f : m.files) {
    struct stat s;
    std::string path = from + "/" + f.name;
    check_done(stat(path.c_str(), &s) == 0, path,
               "was written by another rank, and is not here; is it one folder on all hosts?");
    if (s.st_size != f.bytes)
      fail_with(ErrorKind::other, "{}: has {} bytes, and {} were written", path, s.st_size, f.bytes);
  }
  // Then all but the last sync of an earlier save went well.
  if (auto pointer = read_pointer(dir_); pointer && pointer->name == name) return remove_folder(from);
  ManifestText text = text_of(m);
  write_file(from + "/manifest.json", text.text);
  // One that was never pointed to, or has been left behind by a run that went back: this one takes its place.
  if (exists(to)) {
    std::string gone = dir_ + "/" + removing_prefix + name;
    remove_folder(gone);
    check_done(rename(to.c_str(), gone.c_str()) == 0, to, "cannot be replaced");
    remove_folder(gone);
  }
  check_done(rename(from.c_str(), to.c_str()) == 0, to, "cannot be made");
  check_done(synced_folder(dir_), to, "was written, but its folder may not have been");
  write_file(dir_ + "/latest", Pointer{name, text.checksum}.text());
}

void CheckpointFolder::keep(int newest, int64_t step) const {
  std::vector<int64_t> steps = steps_in(dir_);
  std::erase_if(steps, [&](int64_t s) { return s >= step; });
  for (int64_t i = 0; i < int64_t(steps.size()) - (newest - 1); ++i) {
    std::string name = name_of_step(steps[size_t(i)]), gone = dir_ + "/" + removing_prefix + name;
    if (rename((dir_ + "/" + name).c_str(), gone.c_str()) == 0) remove_folder(gone);
  }
}

}  // namespace sinter
