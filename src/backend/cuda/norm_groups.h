// The second half of a sum over all rows: adds what blocks left of it, always in the same order.
#pragma once
#include <cuda_runtime_api.h>

namespace sinter::cuda {

// out[j] (+)= Σ over groups of partial[group][j], j < d.
void add_groups(float* out, const float* partial, int groups, int d, bool accumulate, cudaStream_t stream);

}  // namespace sinter::cuda
