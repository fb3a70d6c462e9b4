// The least a pass can take on this machine, by its own FLOPs and bytes: what its times are multiples of.
#pragma once
#include "plan/peaks.h"
#include "plan/prediction.h"

namespace sinter::plan {

struct Floor {
  double products_ms = 0;   // model FLOPs at the measured rate of a large GEMM
  double optimizer_ms = 0;  // of a step: AdamW reads p, g, m and v and writes p, m and v at the measured rate of a copy
  double ms() const { return products_ms + optimizer_ms; }
};
// Zeros if there was no room to measure a rate.
Floor floor_of(const RunConfig& config, const Prediction& prediction, Peaks& peaks);

}  // namespace sinter::plan
