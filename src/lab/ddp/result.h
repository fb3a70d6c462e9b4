// A result of bench ddp: one strategy of one run.
#pragma once
#include "lab/measure.h"
#include "lab/sweep.h"

namespace sinter::lab {

// What one rank measured.
struct RankSteps : RankTimes {
  double communication_ms = 0, exposed_ms = 0;  // a step, of recorded ones
  int64_t peak_bytes = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    RankTimes::fields(self, f);
    f("communication_ms", self.communication_ms);
    f("exposed_ms", self.exposed_ms);
    f("peak_bytes", self.peak_bytes);
  }
};

struct DdpResult {
  std::string engine = "sinter";  // or the peer and its version
  MeasuredRun run;
  std::string strategy, backend, backend_why;
  std::optional<double> bucket_mb;
  int64_t ranks = 1, threads = 1;
  std::string status = "ok", reason;
  std::vector<double> samples_ms;  // of each step, the slowest rank's
  std::optional<double> mean_ms, std_ms, median_ms;
  std::optional<double> communication_ms, exposed_ms, overlap;  // means over ranks
  std::optional<int64_t> collectives, gradient_bytes;           // a step
  std::optional<double> wire_bytes;                             // that a rank sends in a step
  std::optional<int64_t> peak_bytes, predicted_peak_bytes;      // of a rank, the largest
  std::optional<double> tokens_per_s, loss;                     // of all ranks
  std::optional<Json> model;                                    // the bucket model (spec: s/(n·w) + n·o)
  std::optional<Json> lanes;                                    // of one step of rank 0: intervals in µs
  std::vector<RankSteps> by_rank;
  std::optional<Json> peer;  // what a peer says of its versions, date and threads

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("engine", self.engine);
    f("strategy", self.strategy);
    f("bucket_mb", self.bucket_mb);
    f("ranks", self.ranks);
    f("threads", self.threads);
    f("backend", self.backend);
    f("backend_why", self.backend_why);
    MeasuredRun::fields(self.run, f);
    f("status", self.status);
    f("reason", self.reason);
    f("samples_ms", self.samples_ms);
    f("mean_ms", self.mean_ms);
    f("std_ms", self.std_ms);
    f("median_ms", self.median_ms);
    f("communication_ms", self.communication_ms);
    f("exposed_ms", self.exposed_ms);
    f("overlap", self.overlap);
    f("collectives", self.collectives);
    f("gradient_bytes", self.gradient_bytes);
    f("wire_bytes", self.wire_bytes);
    f("peak_bytes", self.peak_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("tokens_per_s", self.tokens_per_s);
    f("loss", self.loss);
    f("model", self.model);
    f("lanes", self.lanes);
    f("by_rank", self.by_rank);
    f("peer", self.peer);
  }
};

}  // namespace sinter::lab
