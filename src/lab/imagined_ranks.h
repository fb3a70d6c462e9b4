// Ranks on paper: the step of one of many, traced or predicted without the others.
#pragma once
#include "lab/shard_flags.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct ImaginedRanks {
  std::vector<int64_t> ranks;  // how many, and …
  ShardFlags shard;            // … what they divide among them; each combination is a run
  std::string strategy = "bucketed";

  bool any() const { return !ranks.empty() || !shard.levels.empty(); }
};
void add_imagined_rank_flags(Flags& flags, ImaginedRanks& options);

constexpr int64_t most_imagined_ranks = 1 << 20;

// A group that is not there, of so many ranks; kept for the life of the process.
ProcessGroup* imagined_group(int64_t ranks);

// The runs by each number of ranks and each level; as they are where none is asked for.
std::vector<MeasuredRun> with_ranks(const std::vector<MeasuredRun>& runs, const ImaginedRanks& options);

// What a result says of its ranks, and a title; nothing of a single one.
Json ranks_json(const RunConfig& run);
std::string ranks_text(const RunConfig& run);

}  // namespace sinter::lab
