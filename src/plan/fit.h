// Whether a configuration fits on a GPU, and what would make it fit.
#pragma once
#include "plan/prediction.h"

namespace sinter::plan {

// The CUDA context and the libraries' own memory, which the allocator does not see: 533 to 537 MiB in every run on an
// H200 with CUDA 13.0 (docs/results).
int64_t typical_outside_bytes();

int64_t device_need(const Prediction& prediction);  // segments and what lies outside the allocator
// "bf16", "flash attention": what a GPU lacks; or nothing.
std::string missing_on(const DeviceInfo& gpu, const RunConfig& config);
bool fits(const RunConfig& config, const DeviceInfo& gpu, const MakeModel& make_model);

// The cheapest change that makes it fit, as flags ("--dtype bf16", "--batch 2"), or nothing if none was
// found. Cheap is: first another attention, then another precision, then fewer sequences, then a shorter
// context, then a smaller model.
std::string cheapest_change(const RunConfig& config, const DeviceInfo& gpu, const MakeModel& make_model);

}  // namespace sinter::plan
