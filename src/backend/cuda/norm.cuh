// Arguments common to the normalisation kernels, and how a row is shared out among threads.
#pragma once
#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"

namespace sinter::cuda {

// A row of d elements is held in registers, K groups of four per thread, by one warp (d <= 1024) or by a block of 256
// threads (d <= 8192). f(constant<K>, constant<threads per row>), or false when the row is longer or odd.
template <int N> using Constant = std::integral_constant<int, N>;

template <class F> bool with_row_shape(int64_t d, F&& f) {
  if (d % 4 != 0) return false;
  if (d <= 256) return f(Constant<2>{}, Constant<32>{}), true;
  if (d <= 512) return f(Constant<4>{}, Constant<32>{}), true;
  if (d <= 768) return f(Constant<6>{}, Constant<32>{}), true;
  if (d <= 1024) return f(Constant<8>{}, Constant<32>{}), true;
  if (d <= 2048) return f(Constant<2>{}, Constant<256>{}), true;
  if (d <= 4096) return f(Constant<4>{}, Constant<256>{}), true;
  if (d <= 8192) return f(Constant<8>{}, Constant<256>{}), true;
  return false;
}

// Byte address of a row.
__device__ __forceinline__ const char* row_at(const void* p, DType t, int64_t row, int64_t stride) {
  return static_cast<const char*>(p) + row * stride * size_of(t);
}
__device__ __forceinline__ char* row_at(void* p, DType t, int64_t row, int64_t stride) {
  return static_cast<char*>(p) + row * stride * size_of(t);
}

// Sum over the threads that share a row: a warp, or the block of 256 (then `slots` as in block_reduce).
template <int ThreadsPerRow, class T> __device__ __forceinline__ T row_sum(T x, T* slots) {
  if constexpr (ThreadsPerRow == 32) return warp_reduce(x, Add{});
  else return block_reduce<ThreadsPerRow>(x, Add{}, slots);
}

}  // namespace sinter::cuda
