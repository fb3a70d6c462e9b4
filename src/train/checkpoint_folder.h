// The folder of a run's checkpoints, and how one comes to be in it.
//
// Note [Two phases]: a checkpoint is written into a folder whose name says that it is not one yet, and every file of it
// is on the disk before that folder gets its name, which is on the disk before `latest` names it. Each of these is one
// rename. So whatever moment the power fails at, `latest` names a checkpoint that is whole, the old or the new one, and
// what else lies there is known by its name to be nobody's: it goes when the next run begins. Nothing but a failed disk
// makes a damaged file, and checksums say so: `latest` holds that of the manifest, the manifest its own and those of
// all files.
//
//   DIR/.lock                          held by the run that writes here
//   DIR/latest                         "step_00000100 <checksum of its manifest>"
//   DIR/step_00000100/manifest.json
//   DIR/step_00000100/rank_0000.safetensors, one from each rank that wrote
//   DIR/.saving_step_00000200.<token>  on its way
//   DIR/.removing_step_00000000        going
#pragma once
#include <optional>
#include <string>

#include "system/files.h"
#include "train/manifest.h"

namespace sinter {

struct CheckpointInfo {
  std::string folder;  // DIR/step_00000100
  int64_t step = 0;
  Json config;  // of the run that wrote it
};

// The one that `latest` names; nothing where there is none. What is damaged is refused, by name.
std::optional<CheckpointInfo> latest_checkpoint(const std::string& dir);

std::string file_of_rank(int rank);  // "rank_0000.safetensors"

// Holds the folder for this process alone, until it ends. The folder is made where only its own name is missing.
class FolderLock {
 public:
  explicit FolderLock(const std::string& dir);  // refuses a folder that another holds, or that cannot be written to

 private:
  Descriptor file_;
};

// What is done in a folder by the process that holds it, where many ranks write: by rank 0. What fails is an Error that
// names the file; it leaves `latest` as it was, unless that has been replaced already.
class CheckpointFolder {
 public:
  // `token` tells this run's unfinished folders from those of one that was killed, and may have ranks still writing.
  CheckpointFolder(std::string dir, std::string token) : dir_(std::move(dir)), token_(std::move(token)) {}

  void remove_stale() const;  // what runs that were killed have left
  std::string saving(int64_t step) const;
  std::string begin(int64_t step, int rank) const;  // by every rank: the file that it may then write
  void give_up(int64_t step) const;                 // removes what has been written
  void commit(const Manifest&) const;               // all files are there, and on the disk
  void keep(int newest, int64_t step) const;        // removes checkpoints before this step but for so many less one

 private:
  std::string dir_, token_;
};

}  // namespace sinter
