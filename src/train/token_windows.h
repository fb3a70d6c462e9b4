// A corpus as windows to train on, and which of them make the batch of a step.
//
// Note [Windows]: a file is cut at multiples of ctx, and a window is ctx + 1 tokens from there: the next one's first
// token is this one's last target. So every token but a file's first is a target once an epoch, but for a rest at the
// end of a file that makes no whole window. Windows never reach from one file into another.
//
// Note [Order]: the batch of a step, over all ranks, is a pure function of seed and step. Steps take windows in the
// order of a permutation of them all, a new one for each epoch; position p of epoch e is found without the others, by
// a Feistel network of Philox numbers over the next power of four, applied again until it lands among the windows. So
// there is no state to save or to hand to another number of ranks: a rank takes its slice of the step's windows, and
// each micro-batch its slice of that.
#pragma once
#include <memory>
#include <vector>

#include "train/token_file.h"

namespace sinter {

class Corpus {
 public:
  // Refuses a file that is too short for one window.
  Corpus(std::vector<TokenFile> files, int64_t ctx);

  int64_t ctx() const { return ctx_; }
  int64_t windows() const { return ends_.back(); }
  void read(int64_t window, std::span<int64_t> to) const;  // ctx + 1 tokens
  const std::vector<TokenFile>& files() const { return files_; }

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> ends_;  // by file: how many windows it and those before it have
  int64_t ctx_;
};

// Consecutive windows of a corpus.
struct Windows {
  std::shared_ptr<const Corpus> corpus;
  int64_t begin = 0, end = 0;

  int64_t count() const { return end - begin; }
  int64_t ctx() const { return corpus->ctx(); }
  void read(int64_t i, std::span<int64_t> to) const { corpus->read(begin + i, to); }
};
// The last `fraction` of all windows, at least one, are for validation; of 0 none.
struct Split {
  Windows train, validation;
};
Split split(std::shared_ptr<const Corpus> corpus, double fraction);

// A permutation of [0, n) for each epoch.
class WindowOrder {
 public:
  WindowOrder(int64_t n, uint64_t seed);
  int64_t at(int64_t epoch, int64_t position) const;

 private:
  uint64_t mixed(uint64_t stream, uint64_t x) const;

  int64_t n_;
  uint64_t seed_;
  int half_bits_;  // of a position
};

// How the sequences of a step are divided: the first of `ranks` equal slices for rank 0, and so on; of each slice the
// first `batch` for the first micro-batch.
struct BatchShape {
  int64_t batch = 1, accumulate = 1, ranks = 1, rank = 0;

  int64_t global() const { return batch * accumulate * ranks; }
  int64_t first(int64_t micro) const { return (rank * accumulate + micro) * batch; }  // in the step's sequences
};
// Windows of one micro-batch of a step, from 0 on.
std::vector<int64_t> windows_of(const WindowOrder& order, int64_t windows, const BatchShape& shape, int64_t step,
                                int64_t micro);

}  // namespace sinter
