// What ranks divide among them, as flags say it.
#pragma once
#include "dist/sharding.h"
#include "lab/flags.h"

namespace sinter::lab {

struct ShardFlags {
  std::vector<std::string> levels;
  std::string reshard_after_forward = "yes";
  bool accumulate_unsharded = false;
  double bucket_mb = 25;  // where nothing is sharded

  std::vector<ShardLevel> all_levels() const;                // refuses names that are none
  dist::ShardOptions options(ShardLevel level) const;        // refuses what is neither yes nor no
  void declare(Flags& flags, const std::string& otherwise);  // `otherwise`: the levels if none is given, for --help
};

}  // namespace sinter::lab
