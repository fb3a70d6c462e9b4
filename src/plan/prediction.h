// What a configuration will need, found by running it on the meta device: the same calls through the same allocator, with
// nothing computed. Memory, parameters and FLOPs come from the one run.
#pragma once
#include "train/workload.h"

namespace sinter::plan {

struct Need {
  int64_t parameters = 0, tensors = 0;
  double forward_flops = 0;   // matrix products of one forward pass: what MFU counts; a backward pass is twice that
  double flops = 0;           // of the pass by that rule
  double flops_executed = 0;  // matrix products that the pass really runs: without what a mask leaves out
  double forward_flops_executed = 0;
  MemoryStats first;    // peaks of everything up to the end of the first pass
  MemoryStats steady;   // peaks of a later pass, with what is held throughout
  std::string refused;  // why the memory budget cannot be kept; the rest is without one

  int64_t bytes() const { return std::max(first.peak_allocated, steady.peak_allocated); }
  int64_t reserved() const { return std::max(first.peak_reserved, steady.peak_reserved); }
};
Need predict(const RunConfig& config, const MakeModel& make_model);

struct Fit {
  bool fits;  // what is handed out at once is less than what is free
  int64_t free_bytes;
  std::string reason;   // where it does not
  std::string warning;  // it fits, but only if the allocator gives cached segments back in between
};
Fit fit_of(const Need& need, const RunConfig& config);

}  // namespace sinter::plan
