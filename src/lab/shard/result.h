// A result of bench shard: one level of one run.
#pragma once
#include "lab/ranked_step.h"

namespace sinter::lab {

struct ShardResult : RankedResult {
  std::string level;
  std::optional<double> bucket_mb;  // of none
  bool reshard_after_forward = true, accumulate_unsharded = false;
  std::optional<int64_t> parameters;
  std::optional<double> bytes_moved;  // that a rank sends in a step
  RankMemory memory;                  // at each moment, of the rank that held most

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("level", self.level);
    f("bucket_mb", self.bucket_mb);
    f("reshard_after_forward", self.reshard_after_forward);
    f("accumulate_unsharded", self.accumulate_unsharded);
    f("parameters", self.parameters);
    f("bytes_moved", self.bytes_moved);
    RankMemory::fields(self.memory, f);
    RankedResult::fields(self, f);
  }
};

}  // namespace sinter::lab
