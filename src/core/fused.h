// Several calls as one kernel: each element is loaded once, taken through the steps, and stored where asked.
#pragma once
#include "core/attrs.h"

namespace sinter {

constexpr int max_fused_inputs = 8, max_fused_steps = 32;

// What a value depends on. Programs of elements know no rows: their values vary by element,
// or not at all (single numbers).
enum class Varies : uint8_t { element, row, column, nothing };

enum class StepKind : uint8_t {
  map,       // fn(from[0], from[1], …)
  constant,  // affine.beta
  fma,       // from[0]·from[1] + from[2], rounded once
  exp2,      // 2^from[0]
  causal,    // from[0] in the columns that its row sees, affine.beta in the others
  row_sum,
  row_dot,
  row_max,     // over a row: of from[0]; of from[0]·from[1]; of from[0]
  column_dot,  // over all rows: of from[0]·from[1]; can only be stored
};

// Values are numbered: the inputs first, then the results of the steps.
struct FusedStep {
  PointwiseFn fn = PointwiseFn::copy;
  int from[3] = {0, 0, 0};
  AffineAttrs affine;
  StepKind kind = StepKind::map;
  int64_t causal_rows = 1, causal_offset = 0;  // row i of each matrix of so many rows sees columns up to i + offset
};
struct FusedProgram {
  int n_in = 0, n_steps = 0, n_out = 0;
  FusedStep steps[max_fused_steps];
  int out[max_outputs] = {};  // the value that each output gets
  // Programs of rows (CUDA only): tensors are rows of so many elements, contiguous in
  // themselves. 0: a program of elements.
  int64_t row_length = 0;
  Varies in_varies[max_fused_inputs] = {};
  mutable const void* prepared = nullptr;  // what the device's backend made of it
};
struct FusedAttrs {
  const FusedProgram* program = nullptr;
};

}  // namespace sinter
