// Pieces shared by shape rules and gradient rules.
#pragma once
#include "backend/workspace.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace sinter::rules {

// Layouts a kernel may accept (OpDef::accepts).
inline bool any_strides(const TensorRef&, int, const Attrs&) { return true; }
// The last dimension contiguous, the leading ones foldable into one.
inline bool rows(const TensorRef& t, int, const Attrs&) {
  if (t.rank == 0) return true;
  if (t.strides[t.rank - 1] != 1 && t.dims[t.rank - 1] != 1) return false;
  int64_t expected = -1;
  for (int d = t.rank - 2; d >= 0; --d) {
    if (t.dims[d] == 1) continue;
    if (expected >= 0 && t.strides[d] != expected) return false;
    if (expected < 0 && t.strides[d] < t.dims[t.rank - 1]) return false;
    expected = t.strides[d] * t.dims[d];
  }
  return true;
}

inline void same_as(int input, const OpCall& c, OutSpecs& out) { out.add(c.in(input).dims(), c.in(input).dtype()); }

// Statistics and losses of 16-bit inputs are fp32.
inline DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// Shapes of an op that passes of the compiler put into a step, and nobody calls.
inline void only_compiled(const OpCall& c, OutSpecs&) {
  fail_with(ErrorKind::other, "{}: only a compiled step contains it", c.op.name);
}

inline void check_float(const OpCall& c, int input) {
  check(is_float(c.in(input).dtype()), "{}: input {} must be a float tensor, not {}", c.op.name, input,
        name_of(c.in(input).dtype()));
}

// One FLOP an output element: enough to rank pointwise work, which is bound by bytes anyway.
inline Cost per_element(const OpCall&, const Outputs& out) { return {0, double(out[0].numel())}; }

void check_ids(const char* op, const Tensor& ids, int64_t limit);  // integers below the limit (loss.cpp)

Dims broadcast(const char* op, const Dims& a, const Dims& b);
// The gradient of something that was broadcast: summed back to its shape.
Tensor sum_to(const Tensor& grad, const Dims& dims);

}  // namespace sinter::rules
