#include "lab/shard_flags.h"

#include "core/check.h"

namespace sinter::lab {

void ShardFlags::declare(Flags& flags, const std::string& otherwise) {
  const char* group = "Ranks";
  flags.add(
      "--shard", levels, "LEVEL,..",
      "what ranks divide among them: none, broadcast, optimizer, gradients, parameters (default " + otherwise + ")",
      group);
  flags.add("--reshard-after-forward", reshard_after_forward, "yes|no",
            "level parameters: give them back after the forward pass, and gather them again (default yes)", group);
  flags.add_switch("--accumulate-unsharded", accumulate_unsharded,
                   "with --accumulate: add up whole gradients, and reduce only the last micro-batch's", group);
  flags.add("--bucket-mb", bucket_mb, "MIB", "size of a bucket, where nothing is sharded (default 25)", group);
}

std::vector<ShardLevel> ShardFlags::all_levels() const {
  std::vector<ShardLevel> all;
  for (const std::string& name : levels) all.push_back(shard_level_named(name));
  return all;
}

dist::ShardOptions ShardFlags::options(ShardLevel level) const {
  const std::string& answer = reshard_after_forward;
  check(answer == "yes" || answer == "no", "--reshard-after-forward {}: unknown; choose yes or no", answer);
  check(bucket_mb > 0, "--bucket-mb must be positive, and is {}", bucket_mb);
  return {level, answer == "yes", accumulate_unsharded};
}

}  // namespace sinter::lab
