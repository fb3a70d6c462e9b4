// A step on devices that are not here: how long it takes, what of it is communication, and where it stops scaling.
#pragma once
#include "lab/output.h"
#include "lab/shard_flags.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct PlanSimulateOptions {
  SweepOptions sweep;            // of one configuration; its batch is that of a data rank
  std::string machine, network;  // empty: an H100 and its network
  std::vector<int64_t> devices;
  std::optional<int64_t> tensor, pipeline, context, interleave;
  ShardFlags shard;
  std::vector<std::string> strategy;
  double recompute = 0;
  bool sequence_parallel = false, ungated = false;
  std::string from;  // graph or shapes; empty: the graph where the engine can run it so
  double slow_device = 1, slow_link = 1;
  std::string trace;
};
int plan_simulate(const PlanSimulateOptions& options, const OutputOptions& output, const MakeModel& make_model);
View plan_simulate_view(const Json& record);

}  // namespace sinter::lab
