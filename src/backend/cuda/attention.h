// Attention kernels by the hardware they need. The entries (attention.cpp) choose among them.
#pragma once
#include "core/kernel_call.h"

namespace sinter::cuda {

// Any GPU since sm_80, every shape, type, stride and alignment that kernels.def allows.
void portable_attention(const KernelCall& call);           // q, k, v -> o, L
void portable_attention_backward(const KernelCall& call);  // q, k, v, o, L, do -> dq, dk, dv
// fp32
void portable_attention_weights(const KernelCall& call);           // q, k, v -> p, o
void portable_attention_weights_backward(const KernelCall& call);  // do, v, o, p, k -> ds, dq

}  // namespace sinter::cuda
