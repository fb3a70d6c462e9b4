// A result of bench allreduce, and what follows from all of them.
#pragma once
#include "lab/measure.h"

namespace sinter::lab {

struct AllReduceConfig {
  int64_t ranks = 2;
  std::string backend;
  int64_t bytes = 0;
  DType dtype = DType::f32;

  int64_t elements() const { return bytes / size_of(dtype); }
  std::string text() const;  // "2 ranks, 10 MB of fp32, shm"
};

struct AllReduceResult {
  AllReduceConfig config;
  std::string status = "ok", reason;
  std::vector<double> samples_ms;  // of each run the slowest rank's
  std::optional<double> median_ms, spread_ms;
  std::optional<double> algbw_gbs, busbw_gbs;
  std::optional<bool> verified;  // every sum of every run on every rank, warm-ups included
  std::optional<std::vector<RankTimes>> by_rank;
  std::optional<int64_t> need_bytes, free_bytes;
  std::optional<Json> peer;  // what a peer says of its version, date and threads

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("ranks", self.config.ranks);
    f("backend", self.config.backend);
    f("bytes", self.config.bytes);
    f("dtype", std::string(name_of(self.config.dtype)));
    f("status", self.status);
    f("reason", self.reason);
    f("samples_ms", self.samples_ms);
    f("median_ms", self.median_ms);
    f("spread_ms", self.spread_ms);
    f("algbw_gbs", self.algbw_gbs);
    f("busbw_gbs", self.busbw_gbs);
    f("verified", self.verified);
    f("by_rank", self.by_rank);
    f("need_bytes", self.need_bytes);
    f("free_bytes", self.free_bytes);
    f("peer", self.peer);
  }
};

AllReduceResult all_reduce_result(const AllReduceConfig& config, const std::vector<RankTimes>& by_rank,
                                  const std::string& wrong);

// Per backend, number of ranks and dtype the measured curve, and, of two sizes or more, time = alpha + bytes · beta.
Json fits_of(const Json& results);

}  // namespace sinter::lab
