// What kernels share: loads and stores of any element type, reductions, launching.
//
// Note [Types at run time]: memory-bound kernels read the element type from their arguments and branch on it at each
// load and store. The branch is uniform and costs a few instructions per four elements, where a template over every
// combination of types would cost minutes of compile time. Loads return raw bits (Raw4) and are converted later, so
// that all loads of a thread are in flight before the first conversion waits for one. The hottest kernels have one more
// instance per type, with 16-byte accesses, for operands that all share it.
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <type_traits>

#include "backend/cuda/functions.h"
#include "backend/cuda/runtime.h"
#include "core/dtype.h"
#include "core/kernel_call.h"

namespace sinter::cuda {

using bf16_t = __nv_bfloat16;
using f16_t = __half;

// ---- one element ----

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16_t x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(f16_t x) { return __half2float(x); }

template <class T> __device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16_t>) return __float2bfloat16_rn(x);
  else if constexpr (std::is_same_v<T, f16_t>) return __float2half_rn(x);
  else return T(x);
}

// Element i as C (float, double or int64_t).
template <class C> __device__ __forceinline__ C load(const void* p, DType t, int64_t i) {
  switch (t) {
    case DType::f32: return C(static_cast<const float*>(p)[i]);
    case DType::bf16: return C(to_float(static_cast<const bf16_t*>(p)[i]));
    case DType::f16: return C(to_float(static_cast<const f16_t*>(p)[i]));
    case DType::f64: return C(static_cast<const double*>(p)[i]);
    case DType::i64: return C(static_cast<const int64_t*>(p)[i]);
    case DType::i32: return C(static_cast<const int32_t*>(p)[i]);
    case DType::u8:
    case DType::boolean: return C(static_cast<const uint8_t*>(p)[i]);
  }
  return C(0);
}
__device__ __forceinline__ float load_float(const void* p, DType t, int64_t i) {
  if (t == DType::f32) return static_cast<const float*>(p)[i];
  if (t == DType::bf16) return to_float(static_cast<const bf16_t*>(p)[i]);
  return to_float(static_cast<const f16_t*>(p)[i]);
}

template <class C> __device__ __forceinline__ void store(void* p, DType t, int64_t i, C x) {
  switch (t) {
    case DType::f32: static_cast<float*>(p)[i] = float(x); return;
    case DType::bf16: static_cast<bf16_t*>(p)[i] = __float2bfloat16_rn(float(x)); return;
    case DType::f16: static_cast<f16_t*>(p)[i] = __float2half_rn(float(x)); return;
    case DType::f64: static_cast<double*>(p)[i] = double(x); return;
    case DType::i64: static_cast<int64_t*>(p)[i] = int64_t(x); return;
    case DType::i32: static_cast<int32_t*>(p)[i] = int32_t(x); return;
    case DType::u8: static_cast<uint8_t*>(p)[i] = uint8_t(int64_t(x)); return;
    case DType::boolean: static_cast<uint8_t*>(p)[i] = x != C(0); return;
  }
}
__device__ __forceinline__ void store_float(void* p, DType t, int64_t i, float x) {
  if (t == DType::f32) static_cast<float*>(p)[i] = x;
  else if (t == DType::bf16) static_cast<bf16_t*>(p)[i] = __float2bfloat16_rn(x);
  else static_cast<f16_t*>(p)[i] = __float2half_rn(x);
}

// Rounds x to what type t can hold.
__device__ __forceinline__ float round_to(DType t, float x) {
  if (t == DType::bf16) return to_float(__float2bfloat16_rn(x));
  if (t == DType::f16) return to_float(__float2half_rn(x));
  return x;
}

// ---- four elements of a type known at run time: f32, bf16, f16, i32, u8, bool ----

__device__ __forceinline__ float2 unpack_bf16(uint32_t u) {
  return {__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u)};
}
__device__ __forceinline__ float2 unpack_f16(uint32_t u) {
  __half2 h;
  *reinterpret_cast<uint32_t*>(&h) = u;
  return __half22float2(h);
}
__device__ __forceinline__ uint32_t pack_bf16(float a, float b) {
  __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<uint32_t*>(&h);
}
__device__ __forceinline__ uint32_t pack_f16(float a, float b) {
  __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<uint32_t*>(&h);
}

using Raw4 = uint4;  // the bits of four elements, low words first; unused words are zero

// Elements 4g to 4g + 3; the address is a multiple of their size.
__device__ __forceinline__ Raw4 load_raw4(const void* p, DType t, int64_t g) {
  switch (size_of(t)) {
    case 4: return static_cast<const uint4*>(p)[g];
    case 2: {
      uint2 u = static_cast<const uint2*>(p)[g];
      return {u.x, u.y, 0, 0};
    }
    default: return {static_cast<const uint32_t*>(p)[g], 0, 0, 0};
  }
}
__device__ __forceinline__ void unpack4(const Raw4& r, DType t, float (&v)[4]) {
  if (t == DType::f32) {
    v[0] = __uint_as_float(r.x), v[1] = __uint_as_float(r.y), v[2] = __uint_as_float(r.z), v[3] = __uint_as_float(r.w);
  } else if (t == DType::bf16 || t == DType::f16) {
    float2 a = t == DType::bf16 ? unpack_bf16(r.x) : unpack_f16(r.x);
    float2 b = t == DType::bf16 ? unpack_bf16(r.y) : unpack_f16(r.y);
    v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
  } else if (t == DType::i32) {
    v[0] = float(int(r.x)), v[1] = float(int(r.y)), v[2] = float(int(r.z)), v[3] = float(int(r.w));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = float((r.x >> (8 * i)) & 0xffu);
  }
}
__device__ __forceinline__ void store4(void* p, DType t, int64_t g, const float (&v)[4]) {
  if (t == DType::f32) {
    static_cast<float4*>(p)[g] = {v[0], v[1], v[2], v[3]};
  } else if (t == DType::bf16) {
    static_cast<uint2*>(p)[g] = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
  } else if (t == DType::f16) {
    static_cast<uint2*>(p)[g] = {pack_f16(v[0], v[1]), pack_f16(v[2], v[3])};
  } else if (t == DType::i32) {
    static_cast<int4*>(p)[g] = {int(v[0]), int(v[1]), int(v[2]), int(v[3])};
  } else {
    uint32_t u = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t b = t == DType::boolean ? uint32_t(v[i] != 0) : uint32_t(uint8_t(int(v[i])));
      u |= b << (8 * i);
    }
    static_cast<uint32_t*>(p)[g] = u;
  }
}

// ---- N elements of a type known at compile time ----

template <class T> constexpr int vector_length = 16 / int(sizeof(T));  // elements in the widest access

template <class T, int N> struct Pack {
  static constexpr int bytes = int(sizeof(T)) * N;
  using Word =
      std::conditional_t<bytes % 16 == 0, uint4,
                         std::conditional_t<bytes == 8, uint2, std::conditional_t<bytes == 4, uint32_t, uint16_t>>>;
  static constexpr int words = bytes / int(sizeof(Word));
  Word w[words];
};

template <class T, int N> __device__ __forceinline__ Pack<T, N> load_pack(const T* p) {
  Pack<T, N> r;
#pragma unroll
  for (int i = 0; i < Pack<T, N>::words; ++i) r.w[i] = reinterpret_cast<const typename Pack<T, N>::Word*>(p)[i];
  return r;
}
template <class T, int N> __device__ __forceinline__ Pack<T, N> zero_pack() {
  Pack<T, N> r;
#pragma unroll
  for (int i = 0; i < Pack<T, N>::words; ++i) r.w[i] = {};
  return r;
}
template <class T, int N> __device__ __forceinline__ void unpack(const Pack<T, N>& r, float (&v)[N]) {
  if constexpr (sizeof(T) == 4) {
    const auto* u = reinterpret_cast<const uint32_t*>(r.w);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = __uint_as_float(u[i]);
  } else if constexpr (N == 1) {
    T x;
    *reinterpret_cast<uint16_t*>(&x) = r.w[0];
    v[0] = to_float(x);
  } else {
    const auto* u = reinterpret_cast<const uint32_t*>(r.w);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      float2 f = std::is_same_v<T, bf16_t> ? unpack_bf16(u[i]) : unpack_f16(u[i]);
      v[2 * i] = f.x, v[2 * i + 1] = f.y;
    }
  }
}
template <class T, int N> __device__ __forceinline__ void store_pack(T* p, const float (&v)[N]) {
  if constexpr (N == 1) {
    *p = from_float<T>(v[0]);
  } else {
    Pack<T, N> r;
    auto* u = reinterpret_cast<uint32_t*>(r.w);
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < N; ++i) u[i] = __float_as_uint(v[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        u[i] = std::is_same_v<T, bf16_t> ? pack_bf16(v[2 * i], v[2 * i + 1]) : pack_f16(v[2 * i], v[2 * i + 1]);
    }
#pragma unroll
    for (int i = 0; i < Pack<T, N>::words; ++i) reinterpret_cast<typename Pack<T, N>::Word*>(p)[i] = r.w[i];
  }
}

// ---- arithmetic ----

// Online softmax in powers of two: by what sums over scores up to `before` shrink when the largest, times factor,
// becomes `base`. The product is rounded as base was: fused into the difference it would not cancel, and a sum that
// shrinks by 1 + 1e-7 at each of a thousand tiles is wrong in its fourth digit.
__device__ __forceinline__ float shrink(float before, float base, float factor) {
  return fast_exp2(__fmul_rn(before, factor) - base);
}

// ---- reductions: the same tree whatever the machine; every thread gets the result ----

struct Add {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
  __device__ __forceinline__ float2 operator()(float2 a, float2 b) const { return {a.x + b.x, a.y + b.y}; }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class T> __device__ __forceinline__ T shuffle_xor(T x, int mask) {
  if constexpr (std::is_same_v<T, float2>) return {__shfl_xor_sync(~0u, x.x, mask), __shfl_xor_sync(~0u, x.y, mask)};
  else if constexpr (std::is_same_v<T, int64_t>) return __shfl_xor_sync(~0u, (long long)x, mask);
  else return __shfl_xor_sync(~0u, x, mask);
}
template <class T, class Op> __device__ __forceinline__ T warp_reduce(T x, Op op) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x = op(x, shuffle_xor(x, mask));
  return x;
}
// All threads of a one-dimensional block of Threads. `slots` holds one value per warp; the next reduction of the block
// must use other slots (or come after a barrier), because slow threads may still be reading these.
template <int Threads, class T, class Op> __device__ __forceinline__ T block_reduce(T x, Op op, T* slots) {
  constexpr int warps = Threads / 32;
  static_assert(warps == 1 || warps == 2 || warps == 4 || warps == 8 || warps == 16 || warps == 32);
  x = warp_reduce(x, op);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
  __syncthreads();
  x = slots[threadIdx.x % warps];
#pragma unroll
  for (int mask = warps / 2; mask > 0; mask >>= 1) x = op(x, shuffle_xor(x, mask));
  return x;
}

// ---- host side ----

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tensor as rows: last dimension contiguous, the others folded into one.
struct Rows {
  void* data;
  DType dtype;
  int64_t rows, cols, stride;

  // Every row can be read in accesses of n elements (at most 16 bytes each).
  bool vectors_of(int n) const {
    int64_t bytes = n * size_of(dtype), width = bytes < 16 ? bytes : 16;
    return cols % n == 0 && reinterpret_cast<uintptr_t>(data) % width == 0 &&
           (rows <= 1 || stride * size_of(dtype) % width == 0);
  }
};
inline Rows rows_of(const TensorRef& t) {
  Rows r{t.data, t.dtype, 1, t.rank ? t.dims[t.rank - 1] : 1, 0};
  r.stride = r.cols;
  bool found = false;
  for (int d = t.rank - 2; d >= 0; --d) {
    r.rows *= t.dims[d];
    if (!found && t.dims[d] != 1) r.stride = t.strides[d], found = true;
  }
  return r;
}

inline bool aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

inline void need_floats(const char* kernel, std::initializer_list<const TensorRef*> tensors) {
  for (const TensorRef* t : tensors)
    if (t->dtype != DType::f32 && !is_16bit(t->dtype))
      refuse(kernel, std::string("element type ") + name_of(t->dtype) + " is not supported; use fp32, bf16 or fp16");
}
inline void need_f32(const char* kernel, std::initializer_list<const TensorRef*> tensors) {
  for (const TensorRef* t : tensors)
    if (t->dtype != DType::f32) refuse(kernel, std::string("expected fp32, got ") + name_of(t->dtype));
}

// f(T{}) for the C++ type of a float tensor.
template <class F> void with_float_type(const char* kernel, DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16_t{});
    case DType::f16: return f(f16_t{});
    default: refuse(kernel, std::string("element type ") + name_of(t) + " is not supported; use fp32, bf16 or fp16");
  }
}

// kernel<<<grid, block, 0, stream>>>(args...), with the check that a launch happened (nanoseconds; faults inside the
// kernel surface at the next synchronisation).
template <class... P, class... A>
inline void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, A&&... args) {
  kernel<<<grid, block, 0, stream>>>(P(args)...);
  check_cuda(cudaGetLastError(), name);
}

inline unsigned grid_of(const char* kernel, int64_t blocks) {
  if (blocks > 0x7fffffff) refuse(kernel, "too many elements for one launch");
  return unsigned(blocks);
}

// Row kernels that give each thread one chunk of a row: blockDim.x threads along the row (in loops where it is longer),
// blockDim.y rows per block, about 256 threads in all.
struct RowGrid {
  dim3 grid, block;
};
inline RowGrid row_grid(const char* kernel, int64_t rows, int64_t chunks) {
  int64_t turns = ceil_div(chunks, 512), x = ceil_div(ceil_div(chunks, turns), 32) * 32, y = x >= 256 ? 1 : 256 / x;
  return {dim3(grid_of(kernel, ceil_div(rows, y))), dim3(unsigned(x), unsigned(y))};
}

}  // namespace sinter::cuda
