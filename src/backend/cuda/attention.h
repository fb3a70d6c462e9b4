// Attention kernels by the hardware they need. The entries `attention` and `attention_backward` choose among them.
#pragma once
#include "core/kernel_call.h"

namespace sinter::cuda {

// Any GPU since sm_80, every shape, type, stride and alignment that kernels.def allows.
void portable_attention(const KernelCall& call);           // q, k, v -> o, L
void portable_attention_backward(const KernelCall& call);  // q, k, v, o, L, do -> dq, dk, dv

}  // namespace sinter::cuda
