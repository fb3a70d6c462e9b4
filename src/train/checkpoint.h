// Saving checkpoints while a run trains. Where they lie and how they come there: train/checkpoint_folder.h. Loading:
// train/checkpoint_reader.h. Docs: docs/checkpoints.md.
//
// Note [Saving beside training]: a save copies what this rank is to write into memory of its own, and training goes on
// while a thread writes that to the disk. Memory for the copy is taken once, at the beginning, so that a run which
// begins does not run out of it at its first save. The thread uses no collectives, which would have to be ordered with
// those of the steps. Instead ranks agree at a step's end, on the thread that trains: while a save is on its way each
// poll() is one small collective that asks whether all have written their files. If so rank 0's thread commits the
// checkpoint; if one failed, all give up. So every rank knows the same of every save, and a rank that dies is found out
// as in any other collective.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "train/checkpoint_ranks.h"
#include "train/checkpoint_reader.h"

namespace sinter {

struct CheckpointOptions {
  std::string dir;
  int keep = 0;              // so many checkpoints stay; 0: all
  std::string resumed = {};  // CheckpointInfo::folder, where the run goes on from one of `dir`
};

// How a save went; the same on every rank but for times. One that failed has left the checkpoint before it as it was,
// and the run may go on: the next save tries again.
struct SaveResult {
  int64_t step = 0;
  std::string error;    // empty: the checkpoint is there
  int64_t bytes = 0;    // that this rank wrote
  double stall_ms = 0;  // for which training stood still
  double write_ms = 0;  // from then on until it was there
};

// What this rank's part takes, in memory until it is written and then on the disk. Also on the meta device.
int64_t checkpoint_bytes(Trainer& trainer);

// Made, and called, by all ranks that train together, at the same steps.
class Checkpoints {
 public:
  // Refuses a folder that cannot be written to, that another run uses, that holds checkpoints which this run does not
  // go on from, or that is not the same on all ranks.
  Checkpoints(Trainer& trainer, const CheckpointOptions& options);
  ~Checkpoints();  // a save that nobody has waited for is lost
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Between steps. Waits for an earlier save to end; nothing to do if this step is what was saved last, or loaded.
  void save(int64_t step, const Json& config);
  // After every step: moves on what is on its way. Returns what has ended since the last call.
  std::vector<SaveResult> poll() { return advance(false); }
  std::vector<SaveResult> wait() { return advance(true); }
  int64_t staged_bytes() const { return staged_.bytes(); }

 private:
  enum class State { busy, done, failed };  // of this rank's thread
  enum class Phase { none, writing, committing };
  void start(std::function<void()> work);
  std::vector<SaveResult> advance(bool wait);
  void move_on();
  void finish(const std::string& error);
  void write_file_of_rank();
  Manifest manifest_of(const std::vector<double>& sums) const;

  Trainer& trainer_;
  CheckpointOptions options_;
  ProcessGroup* group_;
  int rank_ = 0, ranks_ = 1;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<CheckpointFolder> folder_;
  std::vector<PieceOfRank> pieces_;  // of all ranks
  std::vector<StoredTensor> file_;   // this rank's, as its file has them
  Tensor staged_;                    // their bytes
  int64_t saved_ = -1;               // the last step that was

  Phase phase_ = Phase::none;
  SaveResult now_;
  Json config_;
  std::vector<double> optimizer_state_;
  std::vector<uint64_t> sums_;  // of this rank's pieces, in the order of pieces_
  int64_t began_ns_ = 0;
  std::thread thread_;
  std::atomic<State> state_ = State::done;
  std::string error_;  // the thread's
  std::vector<SaveResult> ended_;
};

}  // namespace sinter
