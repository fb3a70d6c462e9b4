#include "lab/imagined_ranks.h"

#include <map>
#include <memory>

#include "core/check.h"
#include "dist/group.h"

namespace sinter::lab {

void add_imagined_rank_flags(Flags& flags, ImaginedRanks& o) {
  const char* group = "Ranks";
  flags.add("--ranks", o.ranks, "N,..", "ranks that take the step together, on paper (default 1)", group);
  o.shard.declare(flags, "none");
  flags.add("--strategy", o.strategy, "NAME",
            "without sharding, how they reduce gradients: naive, flat, overlap, bucketed (default bucketed)", group);
}

ProcessGroup* imagined_group(int64_t ranks) {
  static std::map<int64_t, std::unique_ptr<ProcessGroup>> groups;
  auto& group = groups[ranks];
  if (!group) group = dist::make_imagined_group(int(ranks));
  return group.get();
}

std::vector<MeasuredRun> with_ranks(const std::vector<MeasuredRun>& runs, const ImaginedRanks& o) {
  std::vector<int64_t> counts = o.ranks.empty() ? std::vector<int64_t>{1} : o.ranks;
  std::vector<ShardLevel> levels = o.shard.all_levels();
  bool sharded = !levels.empty();
  if (!sharded) levels = {ShardLevel::none};
  for (int64_t n : counts)
    check(n >= 1 && n <= most_imagined_ranks, "--ranks must be between 1 and {}, not {}", most_imagined_ranks, n);
  if (o.ranks.empty() && sharded)
    fail_with(ErrorKind::usage, "--shard {}: say among how many, with --ranks", name_of(levels[0]));
  dist::DataParallelOptions data_parallel{dist::strategy_named(o.strategy), o.shard.bucket_mb};
  std::vector<MeasuredRun> all;
  for (const MeasuredRun& run : runs)
    for (int64_t n : counts)
      for (ShardLevel level : levels) {
        MeasuredRun& r = all.emplace_back(run);
        if (n == 1 && !sharded) continue;
        r.group = imagined_group(n);
        r.data_parallel = data_parallel;
        r.shard = o.shard.options(level);
      }
  return all;
}

Json ranks_json(const RunConfig& run) {
  if (!run.group) return Json::object();
  Json j = {{"ranks", run.group->size()}, {"shard", name_of(run.shard.level)}};
  if (run.shard.level == ShardLevel::none) {
    j["strategy"] = dist::name_of(run.data_parallel.strategy);
    j["bucket_mb"] = run.data_parallel.bucket_mb;
  }
  if (run.shard.level == ShardLevel::parameters) j["reshard_after_forward"] = run.shard.reshard_after_forward;
  if (run.shard.level >= ShardLevel::gradients) j["accumulate_unsharded"] = run.shard.accumulate_unsharded;
  return j;
}

std::string ranks_text(const RunConfig& run) {
  if (!run.group) return "";
  std::string how = run.shard.level == ShardLevel::none ? dist::name_of(run.data_parallel.strategy)
                                                        : fmt::format("shard {}", name_of(run.shard.level));
  return fmt::format(", {} {}, {}", run.group->size(), run.group->size() == 1 ? "rank" : "ranks", how);
}

}  // namespace sinter::lab
