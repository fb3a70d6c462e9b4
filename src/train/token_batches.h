// Batches of a corpus, on their device: those of the next step are made while a step runs.
#pragma once
#include <future>

#include "ops/context.h"
#include "train/batch.h"
#include "train/token_windows.h"

namespace sinter {

// Rows of a batch from windows.
Batch batch_of(const Windows& windows, const std::vector<int64_t>& which, int64_t vocab, DeviceType device);

class TokenBatches {
 public:
  // The windows must have been checked against the vocabulary (TokenFile::check_ids).
  TokenBatches(const Windows& windows, uint64_t seed, const BatchShape& shape, int64_t vocab, DeviceType device,
               int64_t first_step);
  ~TokenBatches();
  TokenBatches(const TokenBatches&) = delete;
  TokenBatches& operator=(const TokenBatches&) = delete;

  // This rank's micro-batches of the next step. Those of the step before may be overwritten from now on: by what the
  // caller's stream does after this call only.
  std::span<const Batch> next();
  std::vector<Batch> of(int64_t step) const;  // in memory of their own
  double epochs(int64_t step) const { return double(step * shape_.global()) / double(windows_.count()); }

 private:
  void prepare(int64_t step);  // another thread begins to
  void write(int64_t step);

  Windows windows_;
  WindowOrder order_;
  BatchShape shape_;
  int64_t vocab_, step_;
  DeviceBackend& backend_;
  void* stream_ = nullptr;      // that copies; null: the CPU needs none
  Event free_;                  // what the previous owner of a set had submitted is over
  std::vector<Batch> sets_[2];  // by steps in turns
  std::future<void> ready_;
};

}  // namespace sinter
