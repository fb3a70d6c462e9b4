#include "dist/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/range.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

constexpr const char* names[strategy_count] = {"naive", "flat", "overlap", "bucketed"};

// Of the bytes of a parameter.
uint64_t hash_of(const Tensor& t) {
  Tensor c = to(contiguous(t), DeviceType::cpu);
  const auto* bytes = static_cast<const unsigned char*>(c.data());
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (int64_t i = 0; i < c.bytes(); i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + i, size_t(std::min<int64_t>(4, c.bytes() - i)));
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace

const char* name_of(Strategy s) { return names[int(s)]; }

Strategy strategy_named(const std::string& name) {
  for (int i = 0; i < strategy_count; ++i)
    if (name == names[i]) return Strategy(i);
  fail_with(ErrorKind::usage, "--strategy {}: unknown; choose {}", name, fmt::join(names, ", "));
}

DataParallel::DataParallel(Parameters& parameters, ProcessGroup& group, const DataParallelOptions& options)
    : parameters_(parameters), group_(group), options_(options), leaves_(parameters.trainable_leaves()) {
  check(std::isfinite(options.bucket_mb) && options.bucket_mb > 0, "--bucket-mb must be positive, and is {}",
        options.bucket_mb);
  make_buckets();
  for (size_t i = 0; i < leaves_.size(); ++i) leaves_[i].leaf->hooks.push_back([this, i](Leaf&) { arrived(i); });
  NoGrad off;
  Range range("broadcast", RangeKind::phase);
  broadcast(parameters_.master(), group_);
  join_communication(parameters_.options().device);
  parameters_.refresh_stale_low_copy();
}

DataParallel::~DataParallel() {
  drain_communication(parameters_.options().device);
  for (const auto& l : leaves_) l.leaf->hooks.pop_back();
}

// A bucket is closed once it has its size, so that it may be larger; what is larger by itself gets one of its own.
void DataParallel::make_buckets() {
  first_bucket_.resize(leaves_.size());
  if (leaves_.empty()) return;
  switch (options_.strategy) {
    case Strategy::flat: buckets_ = {{leaves_.front().begin, leaves_.back().end}}; break;
    case Strategy::naive:
    case Strategy::overlap:
      for (size_t i = 0; i < leaves_.size(); ++i) {
        first_bucket_[i] = buckets_.size();
        for (auto [begin, end] : leaves_[i].entries) buckets_.push_back({begin, end});
      }
      break;
    case Strategy::bucketed: {
      int64_t limit =
          std::max<int64_t>(1, int64_t(options_.bucket_mb * (1 << 20)) / size_of(parameters_.master().dtype()));
      bool open = false;
      for (size_t i = 0; i < leaves_.size(); ++i) {
        const auto& l = leaves_[i];
        bool large = l.end - l.begin >= limit;
        if (!open || large) buckets_.push_back({l.begin, l.end});
        buckets_.back().end = l.end;
        open = buckets_.back().end - buckets_.back().begin < limit;
        first_bucket_[i] = buckets_.size() - 1;
      }
    }
  }
}

void DataParallel::begin_backward(Window window) {
  sync_ = window.last;
  next_ = 0;
  waits_for_.assign(buckets_.size(), 0);
  for (size_t i = 0; i < leaves_.size(); ++i) ++waits_for_[first_bucket_[i]];
}

void DataParallel::reduce(const Bucket& b) const {
  all_reduce(parameters_.role("gradient").range(b.begin, b.end), group_, ReduceKind::average);
}

void DataParallel::arrived(size_t leaf) {
  if (!sync_) return;
  NoGrad off;
  if (options_.strategy == Strategy::overlap) {
    size_t first = first_bucket_[leaf];
    for (size_t b = first; b < first + leaves_[leaf].entries.size(); ++b) reduce(buckets_[b]);
    waits_for_[first] = 0;
  } else if (options_.strategy == Strategy::bucketed) {
    --waits_for_[first_bucket_[leaf]];
    while (next_ < buckets_.size() && waits_for_[next_] == 0) reduce(buckets_[next_++]);
  }
}

void DataParallel::finish_backward() {
  if (!sync_) return;
  sync_ = false;
  NoGrad off;
  std::vector<std::string> missing;
  for (const auto& l : leaves_)
    if (!l.leaf->has_grad) missing.push_back(l.leaf->name);
  check(
      missing.empty(),
      "rank {}: the backward pass gave no gradient to {}; ranks must agree on what they reduce, so freeze what a model "
      "does not use",
      group_.rank(), fmt::join(missing, ", "));
  if (options_.strategy == Strategy::naive || options_.strategy == Strategy::flat) {
    for (const Bucket& b : buckets_) reduce(b);
  } else if (options_.strategy == Strategy::bucketed) {
    while (next_ < buckets_.size()) reduce(buckets_[next_++]);
  } else {  // parameters that this micro-batch did not reach, but an earlier one did
    for (size_t i = 0; i < leaves_.size(); ++i)
      for (size_t b = first_bucket_[i];
           waits_for_[first_bucket_[i]] && b < first_bucket_[i] + leaves_[i].entries.size(); ++b)
        reduce(buckets_[b]);
  }
  join_communication(parameters_.options().device);
}

void DataParallel::average(const Tensor& x) const {
  NoGrad off;
  all_reduce(x, group_, ReduceKind::average);
  join_communication(x.device());
}

// Hashes go as halves, which fp64 holds exactly.
void check_replicas(ProcessGroup& group, const Parameters& parameters, int64_t step) {
  const auto& entries = parameters.entries();
  size_t halves = 2 * entries.size();
  std::vector<double> mine, all(halves * size_t(group.size()));
  for (const Parameters::Entry& e : entries) {
    uint64_t h = e.value.defined() ? hash_of(e.value) : 0;  // what is sharded has no replicas
    mine.push_back(double(h >> 32)), mine.push_back(double(uint32_t(h)));
  }
  group.run({CollectiveKind::all_gather, ReduceKind::sum, DType::f64, 0, int64_t(all.size())}, mine.data(), all.data(),
            nullptr);
  for (size_t i = 0; i < halves; ++i)
    for (size_t rank = 1; rank < size_t(group.size()); ++rank)
      if (all[rank * halves + i] != all[i])
        fail_with(ErrorKind::numeric,
                  "replicas have diverged (--check-replicas): after step {}, {} of rank {} differs from rank 0's. A "
                  "collective was left out, a rank computes differently, or memory is faulty",
                  step, entries[i / 2].name, rank);
}

}  // namespace sinter::dist
