// What a step costs by closed forms: nothing is run, and every result has its equation with it.
#pragma once
#include "lab/output.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct PlanCostOptions {
  SweepOptions sweep;  // of one configuration
  std::string preset;  // in its place
  // What is not given is the preset's, or one H100's by its datasheet.
  std::optional<int64_t> data, tensor;
  std::optional<std::string> shard;
  std::vector<int64_t> links;                               // for the data axis, for the tensor axis
  std::optional<double> flops, bandwidth, memory, call_us;  // memory in 10⁹ bytes
};
int plan_cost(const PlanCostOptions& options, const OutputOptions& output);
View plan_cost_view(const Json& record);

}  // namespace sinter::lab
