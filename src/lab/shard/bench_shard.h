// Sharded training by level: the same step, with more and more of its memory divided among ranks.
#pragma once
#include "lab/ranked_step.h"
#include "lab/shard_flags.h"
#include "lab/view.h"

namespace sinter::lab {

struct ShardBenchOptions : RankedOptions {
  ShardFlags shard;  // none: data parallelism in buckets
};

int bench_shard(const ShardBenchOptions& options, const OutputOptions& output, const MakeModel& make_model);
View bench_shard_view(const Json& record);

}  // namespace sinter::lab
