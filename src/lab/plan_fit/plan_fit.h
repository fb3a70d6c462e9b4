// Which precision, sharding, recomputation and micro-batch fit on so many devices, and which of them is fastest.
#pragma once
#include "lab/output.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct PlanFitOptions {
  SweepOptions sweep;                             // of one model; --dtype may name several
  std::string machine = "h100", network, memory;  // memory: "80GB", "40 GiB"; empty: the machine's
  int64_t gpus = 1;
  std::optional<int64_t> global_batch;  // sequences of a step
  std::vector<std::string> shard;
};
int plan_fit(const PlanFitOptions& options, const OutputOptions& output, const MakeModel& make_model);
View plan_fit_view(const Json& record);

}  // namespace sinter::lab
