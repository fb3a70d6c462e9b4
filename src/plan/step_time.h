// How long a step of the engine takes on a machine, before it has run there: its own graph, traced on the meta device,
// whose tasks run in lanes as the executor runs them.
#pragma once
#include "plan/simulator.h"
#include "train/run_config.h"

namespace sinter::plan {

// What runs: one pass, or several where micro-batches make a step, and how often.
struct StepWork {
  std::vector<Work> parts;
  std::vector<int64_t> times;
};
StepWork step_work(const RunConfig& run, const DeviceInfo& on, int64_t devices_per_node, const MakeModel& make_model);

struct StepTime {
  double seconds = 0, communication = 0, exposed = 0;
  double flops = 0;    // of products and attention, as run
  double outside = 0;  // of products' FLOPs, the part in calls smaller or larger than those that were measured
  Timeline timeline;   // of the last part
};
StepTime time_of(const StepWork& work, const Machine& machine, const Network& network,
                 const Conditions& conditions = {});

}  // namespace sinter::plan
