// The operands of adamw_product: the optimizer's state, and for each weight that the call updates (dy, x, master, m, v,
// copy). A single weight may have no copy.
#pragma once
#include "core/kernel_call.h"

namespace sinter {

constexpr int max_folded = 4;       // weights in a call
constexpr int folded_operands = 6;  // of a weight
static_assert(1 + folded_operands * max_folded <= 32, "OpDef::mutates has a bit for each");

enum FoldedOperand : int { folded_dy, folded_x, folded_master, folded_m, folded_v, folded_copy };

[[gnu::always_inline]] inline int folded_weights(const KernelCall& call) {
  return (call.n_in - 1 + folded_operands - 1) / folded_operands;
}
// Where an operand of a weight stands among the call's inputs.
[[gnu::always_inline]] constexpr int folded_input(int weight, FoldedOperand which) {
  return 1 + folded_operands * weight + which;
}
[[gnu::always_inline]] inline bool has_copy(const KernelCall& call, int weight) {
  return folded_input(weight, folded_copy) < call.n_in;
}

}  // namespace sinter
