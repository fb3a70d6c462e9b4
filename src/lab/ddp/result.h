// A result of bench ddp: one strategy of one run.
#pragma once
#include "lab/ranked_step.h"

namespace sinter::lab {

struct DdpResult : RankedResult {
  std::string engine = "sinter";  // or the peer and its version
  std::string strategy;
  std::optional<double> bucket_mb;
  std::optional<int64_t> gradient_bytes;  // that a step reduces
  std::optional<double> wire_bytes;       // that a rank sends for them
  std::optional<Json> model;              // the bucket model (spec: s/(n·w) + n·o)
  std::optional<Json> lanes;              // of one step of rank 0: intervals in µs
  std::optional<Json> peer;               // what a peer says of its versions, date and threads

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("engine", self.engine);
    f("strategy", self.strategy);
    f("bucket_mb", self.bucket_mb);
    f("gradient_bytes", self.gradient_bytes);
    f("wire_bytes", self.wire_bytes);
    f("model", self.model);
    RankedResult::fields(self, f);
    f("lanes", self.lanes);
    f("peer", self.peer);
  }
};

}  // namespace sinter::lab
