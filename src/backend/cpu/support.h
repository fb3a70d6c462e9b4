// The generic half of the CPU kernels: what they need from shared headers and the standard library, compiled once for
// any x86-64 (Note [Two instruction sets]).
#pragma once
#include <cstdint>

#include "backend/pointwise_layout.h"
#include "core/attrs.h"
#include "core/kernel_call.h"

namespace sinter::cpu {

// A buffer of the calling thread, at least `bytes` long, 64-byte aligned; its contents last until the same thread asks
// for the same slot again. Slots below `call_slot` belong to code inside a parallel range, the others to the code that
// starts one, whose buffers the ranges then share.
constexpr int call_slot = 8, scratch_slots = 12;
void* scratch(int slot, int64_t bytes);

void layout_of(PointwiseLayout& layout, const TensorRef& out, const TensorRef* in, int n_in);

// Φ at the two ends of a truncated normal.
void normal_ends(double low, double high, float& p_low, float& p_high);

// Rows and columns of a tile of the tiled attention: what the attributes ask for, else 64, or as many as fit.
int64_t attention_tile(const AttentionAttrs& attrs, int64_t head_dim, int64_t element_bytes);
[[noreturn]] void refuse_portable_attention();

[[noreturn]] void refuse(const char* kernel, const char* reason,
                         const KernelCall& call);  // throws, naming types and shapes

}  // namespace sinter::cpu
