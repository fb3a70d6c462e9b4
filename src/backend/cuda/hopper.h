// Host side of kernels made of Hopper's own instructions (hopper.cuh): whether they can run, and tensor maps for TMA.
#pragma once
#include <cuda.h>

#include "core/kernel_call.h"

namespace sinter::cuda::hopper {

bool can_run();  // the GPU and this build are for sm_90a

// A (batch, heads, positions, columns) tensor of 16-bit values seen in boxes of `rows` positions ×
// `panel` (16, 32 or 64) columns.
CUtensorMap map_of(const TensorRef& t, int rows, int panel);

}  // namespace sinter::cuda::hopper
