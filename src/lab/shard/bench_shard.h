// Sharded training by level: the same step, with more and more of its memory divided among ranks.
#pragma once
#include "lab/ranked_step.h"
#include "lab/view.h"

namespace sinter::lab {

struct ShardBenchOptions : RankedOptions {
  std::vector<std::string> levels;  // none: data parallelism in buckets
  double bucket_mb = 25;            // of none
  std::string reshard_after_forward = "yes";
  bool accumulate_unsharded = false;
};

int bench_shard(const ShardBenchOptions& options, const OutputOptions& output, const MakeModel& make_model);
View bench_shard_view(const Json& record);

}  // namespace sinter::lab
