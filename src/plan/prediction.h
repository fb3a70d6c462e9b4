// What a run needs, from one walk of the meta device: the same calls through the same allocator, with nothing computed.
#pragma once
#include "plan/walk.h"

namespace sinter::plan {

struct Prediction {
  Walk walk;                 // memory, parameters, what each op does
  double forward_flops = 0;  // GEMMs of one forward pass: what MFU counts; a backward pass is twice that
  double flops = 0;          // of the pass by that rule
  // GEMMs that the pass really runs: flash attention leaves out what a mask hides and recomputes the scores backward;
  // eager naive attention computes all of them.
  double flops_executed = 0;
  double forward_flops_executed = 0;
  double wire_bytes = 0;    // that this rank sends to others in the pass …
  int64_t collectives = 0;  // … in so many calls
  std::string refused;      // why the memory budget cannot be kept; the rest is without one

  int64_t bytes() const { return std::max(walk.first.peak_allocated, walk.steady.peak_allocated); }
  int64_t reserved() const { return std::max(walk.first.peak_reserved, walk.steady.peak_reserved); }
};
Prediction predict(const RunConfig& run, const DeviceInfo& on, const MakeModel& make_model);

struct Fit {
  bool fits;  // what is handed out at once is less than what is free
  int64_t free_bytes;
  std::string reason;   // where it does not
  std::string warning;  // it fits, but only if the allocator gives cached segments back in between
};
Fit fit_of(const Prediction& prediction, int64_t free_bytes);

}  // namespace sinter::plan
