// How long a step of the engine takes on a machine, before it has run there: its own graph, traced on the meta device,
// whose tasks run in lanes as the executor runs them.
#pragma once
#include "plan/simulator.h"
#include "train/run_config.h"

namespace sinter::plan {

struct StepTime {
  double seconds = 0, communication = 0, exposed = 0;
  double flops = 0;            // of products and attention, as run
  double outside = 0;          // of them, the part in products that are smaller or larger than what was measured
  std::vector<Work> parts;     // what runs: one, or several where micro-batches make a step …
  std::vector<int64_t> times;  // … and how often
  Timeline timeline;           // of the last of them
};
StepTime predict_time(const RunConfig& run, const DeviceInfo& on, const Machine& machine, const Network& network,
                      const MakeModel& make_model, const Conditions& conditions = {});

}  // namespace sinter::plan
