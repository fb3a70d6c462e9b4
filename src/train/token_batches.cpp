#include "train/token_batches.h"

#include <algorithm>

#include "core/check.h"
#include "ops/ops.h"

namespace sinter {
namespace {

// (2, batch, ctx): tokens, then targets.
std::vector<int64_t> rows_of(const Windows& windows, const std::vector<int64_t>& which, int64_t vocab) {
  int64_t ctx = windows.ctx(), half = int64_t(which.size()) * ctx;
  std::vector<int64_t> ids(size_t(2 * half)), window(size_t(ctx + 1));
  for (size_t row = 0; row < which.size(); ++row) {
    windows.read(which[row], window);
    // They were checked when the run began, but a file can change, and a GPU would read outside its tables.
    bool known = std::all_of(window.begin(), window.end(), [&](int64_t id) { return id >= 0 && id < vocab; });
    check(known,
          "the files of tokens have changed since the run began: window {} holds an id beyond the vocabulary of {}",
          windows.begin + which[row], vocab);
    int64_t at = int64_t(row) * ctx;
    std::copy(window.begin(), window.end() - 1, ids.begin() + at);
    std::copy(window.begin() + 1, window.end(), ids.begin() + half + at);
  }
  return ids;
}

}  // namespace

Batch batch_of(const Windows& windows, const std::vector<int64_t>& which, int64_t vocab, DeviceType device) {
  return {from_vector(rows_of(windows, which, vocab), {2, int64_t(which.size()), windows.ctx()}, device)};
}

TokenBatches::TokenBatches(const Windows& windows, uint64_t seed, const BatchShape& shape, int64_t vocab,
                           DeviceType device, int64_t first_step)
    : windows_(windows),
      order_(windows.count(), seed),
      shape_(shape),
      vocab_(vocab),
      step_(first_step),
      backend_(backend_of(device)),
      free_(device) {
  if (device == DeviceType::cuda) stream_ = backend_.create_stream(StreamRole::copy);
  for (auto& set : sets_)
    for (int64_t micro = 0; micro < shape.accumulate; ++micro)
      set.push_back({empty({2, shape.batch, windows.ctx()}, DType::i64, device)});
  prepare(step_);
}

TokenBatches::~TokenBatches() {
  if (ready_.valid()) ready_.wait();
  if (stream_) backend_.destroy_stream(stream_);
}

void TokenBatches::prepare(int64_t step) {
  free_.record();
  ready_ = std::async(std::launch::async, [this, step] { write(step); });
}

void TokenBatches::write(int64_t step) {
  DeviceBackend& backend = backend_of(sets_[0][0].ids.device());  // this thread's first use: Note [One GPU]
  free_.wait();
  for (int64_t micro = 0; micro < shape_.accumulate; ++micro) {
    std::vector<int64_t> ids = rows_of(windows_, windows_of(order_, windows_.count(), shape_, step, micro), vocab_);
    const Tensor& to = sets_[step % 2][size_t(micro)].ids;
    backend.copy_from_host(to.data(), ids.data(), ids.size() * sizeof(int64_t), stream_);
  }
  backend.synchronize(stream_);
}

std::span<const Batch> TokenBatches::next() {
  ready_.get();
  int64_t now = step_++;
  prepare(step_);
  return sets_[now % 2];
}

std::vector<Batch> TokenBatches::of(int64_t step) const {
  std::vector<Batch> all;
  for (int64_t micro = 0; micro < shape_.accumulate; ++micro)
    all.push_back(batch_of(windows_, windows_of(order_, windows_.count(), shape_, step, micro), vocab_,
                           sets_[0][0].ids.device()));
  return all;
}

}  // namespace sinter
