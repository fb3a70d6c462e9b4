// Fused programs on CUDA: text, machine code, loaded kernels.
#pragma once
#include <span>

#include "core/kernel_call.h"

namespace sinter::cuda {

// Finds or makes the kernels of these calls of `fused`, together: a compiled step's are all made before it first runs.
void prepare_fused(std::span<const KernelCall* const> calls);

}  // namespace sinter::cuda
