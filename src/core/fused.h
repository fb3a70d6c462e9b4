// A tree of pointwise functions that runs as one kernel: each element is loaded once, taken through the steps, and stored where asked.
#pragma once
#include "core/attrs.h"

namespace sinter {

constexpr int max_fused_steps = 32;

// Values are numbered: the inputs first, then the results of the steps.
struct FusedStep {
  PointwiseFn fn = PointwiseFn::copy;
  int from[3] = {0, 0, 0};
  AffineAttrs affine;
};
struct FusedProgram {
  int n_in = 0, n_steps = 0, n_out = 0;
  FusedStep steps[max_fused_steps];
  int out[max_outputs] = {};  // the value that each output gets
};
struct FusedAttrs {
  const FusedProgram* program = nullptr;
};

}  // namespace sinter
