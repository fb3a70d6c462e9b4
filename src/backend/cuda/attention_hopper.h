// Attention by Hopper's own instructions (sm_90a): bf16 and fp16, head dimensions up to 128.
#pragma once
#include "core/kernel_call.h"

namespace sinter::cuda::hopper {

bool takes(const KernelCall& call);  // whether these kernels can: the GPU, the types, and addresses that TMA can read
void attention(const KernelCall& call);
void attention_backward(const KernelCall& call);
// attention_weights and attention_weights_backward
bool takes_weights(const KernelCall& call);
void attention_weights(const KernelCall& call);
void attention_weights_backward(const KernelCall& call);

}  // namespace sinter::cuda::hopper
