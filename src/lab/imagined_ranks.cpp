#include "lab/imagined_ranks.h"

#include <map>
#include <memory>

#include "core/check.h"
#include "dist/group.h"

namespace sinter::lab {

void add_imagined_rank_flags(Flags& flags, ImaginedRanks& o) {
  const char* group = "Ranks";
  flags.add("--ranks", o.ranks, "N,..", "ranks that take the step together, on paper (default 1)", group);
  flags.add("--shard", o.shard, "LEVEL,..",
            "what they divide among them: none, broadcast, optimizer, gradients, parameters (default none)", group);
  flags.add("--reshard-after-forward", o.reshard_after_forward, "yes|no",
            "level parameters: give them back after the forward pass, and gather them again (default yes)", group);
  flags.add_switch("--accumulate-unsharded", o.accumulate_unsharded,
                   "micro-batches add up whole gradients, and only the last is reduced", group);
  flags.add("--strategy", o.strategy, "NAME",
            "without sharding, how they reduce gradients: naive, flat, overlap, bucketed (default bucketed)", group);
  flags.add("--bucket-mb", o.bucket_mb, "MIB", "size of a bucket (default 25)", group);
}

bool reshards(const std::string& answer) {
  check(answer == "yes" || answer == "no", "--reshard-after-forward {}: unknown; choose yes or no", answer);
  return answer == "yes";
}

ProcessGroup* imagined_group(int64_t ranks) {
  static std::map<int64_t, std::unique_ptr<ProcessGroup>> groups;
  auto& group = groups[ranks];
  if (!group) group = dist::make_imagined_group(int(ranks));
  return group.get();
}

std::vector<MeasuredRun> with_ranks(const std::vector<MeasuredRun>& runs, const ImaginedRanks& o) {
  std::vector<int64_t> counts = o.ranks.empty() ? std::vector<int64_t>{1} : o.ranks;
  std::vector<std::string> levels = o.shard.empty() ? std::vector<std::string>{"none"} : o.shard;
  constexpr int64_t most = 1 << 20;
  for (int64_t n : counts) check(n >= 1 && n <= most, "--ranks must be between 1 and {}, not {}", most, n);
  if (o.ranks.empty() && !o.shard.empty())
    fail_with(ErrorKind::usage, "--shard {}: say among how many, with --ranks", o.shard[0]);
  dist::ShardOptions shard{ShardLevel::none, reshards(o.reshard_after_forward), o.accumulate_unsharded};
  dist::DataParallelOptions data_parallel{dist::strategy_named(o.strategy), o.bucket_mb};
  std::vector<MeasuredRun> all;
  for (const MeasuredRun& run : runs)
    for (int64_t n : counts)
      for (const std::string& level : levels) {
        MeasuredRun& r = all.emplace_back(run);
        if (n == 1 && o.shard.empty()) continue;
        r.group = imagined_group(n);
        r.data_parallel = data_parallel;
        r.shard = shard, r.shard.level = shard_level_named(level);
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
