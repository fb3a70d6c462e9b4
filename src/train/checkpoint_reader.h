// Reading a checkpoint: into a trainer, or parameter by parameter.
#pragma once
#include <functional>
#include <memory>
#include <set>

#include "system/safetensors.h"
#include "train/checkpoint_folder.h"
#include "train/trainer.h"

namespace sinter {

// Maps a checkpoint's files. Nothing of a tensor is read, or given to anybody, before its checksum has been found
// right.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& folder);  // CheckpointInfo::folder; refuses it if it is damaged

  const Manifest& manifest() const { return manifest_; }
  // A parameter as it was, on the CPU: tensor("master", "embedding.weight"). Refuses what is not there.
  Tensor tensor(const std::string& role, const std::string& name);

  // In parts: elements [begin, end) of one of the manifest's tensors. All pieces that hold some of them are verified
  // first; then they are handed out where they lie in the files, with the element that each begins with.
  using Part = std::function<void(int64_t begin, std::string_view bytes)>;
  void verify(const Manifest::Stored& stored, int64_t begin, int64_t end);
  void read(const Manifest::Stored& stored, int64_t begin, int64_t end, const Part& part);

 private:
  std::string_view bytes_of(const Manifest::Stored& stored, const Manifest::Piece& piece) const;
  std::string folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::set<const Manifest::Piece*> verified_;
};

// Fills the trainer with what the checkpoint holds: of masters and moments what this rank has, whoever wrote it, and
// the optimizer's numbers. 16-bit copies follow. Called by all ranks that train together. Refuses a checkpoint of
// another model or optimizer, and one that is damaged, on all of them and before anything is changed.
void load_checkpoint(const CheckpointInfo& checkpoint, Trainer& trainer);

}  // namespace sinter
