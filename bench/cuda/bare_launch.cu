// The cheapest way to add two small arrays: what a call through the engine is compared with.
#include <cuda_runtime.h>

__global__ void bare_add(float* y, const float* a, const float* b, int n) {
  int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = a[i] + b[i];
}

void launch_bare_add(float* y, const float* a, const float* b, int n, void* stream) {
  bare_add<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(y, a, b, n);
}
