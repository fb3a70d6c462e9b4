// What generated kernels are written in: loads, stores and reductions. NVRTC reads it after functions.h and
// fused_args.h; it includes nothing.
#ifndef SINTER_BACKEND_CUDA_FUSED_PRELUDE_H
#define SINTER_BACKEND_CUDA_FUSED_PRELUDE_H

namespace sinter::cuda {

// ---- two elements of 16 bits in a word, the first in its lower half ----
// Without CUDA these are defined by the file that includes this one.
#ifdef __CUDACC__
__device__ __forceinline__ float2 unpack_bf16(unsigned u) {
  return {__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u)};
}
__device__ __forceinline__ float2 unpack_f16(unsigned u) {
  float2 f;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(f.x), "=f"(f.y) : "r"(u));
  return f;
}
__device__ __forceinline__ unsigned pack_bf16(float a, float b) {
#if __CUDA_ARCH__ >= 800
  unsigned u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(b), "f"(a));
  return u;
#else
  auto rounded = [](float x) {
    unsigned u = __float_as_uint(x);
    return x != x ? 0x7fffu : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  };
  return rounded(a) | rounded(b) << 16;
#endif
}
__device__ __forceinline__ unsigned pack_f16(float a, float b) {
  unsigned u;
  asm("{.reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}" : "=r"(u) : "f"(a), "f"(b));
  return u;
}
#endif

// ---- element types ----
struct fp32 {
  static constexpr int per_word = 1;
};
struct bf16 {
  static constexpr int per_word = 2;
  static __device__ __forceinline__ float2 unpack(unsigned u) { return unpack_bf16(u); }
  static __device__ __forceinline__ unsigned pack(float a, float b) { return pack_bf16(a, b); }
};
struct fp16 {
  static constexpr int per_word = 2;
  static __device__ __forceinline__ float2 unpack(unsigned u) { return unpack_f16(u); }
  static __device__ __forceinline__ unsigned pack(float a, float b) { return pack_f16(a, b); }
};

template <class T> __device__ __forceinline__ float load_one(const void* p, long long i) {
  if constexpr (T::per_word == 1) return static_cast<const float*>(p)[i];
  else return T::unpack(static_cast<const unsigned short*>(p)[i]).x;
}
template <class T> __device__ __forceinline__ void store_one(void* p, long long i, float x) {
  if constexpr (T::per_word == 1) static_cast<float*>(p)[i] = x;
  else static_cast<unsigned short*>(p)[i] = static_cast<unsigned short>(T::pack(x, 0.0f));
}

// V elements as they lie in memory: loads stay in flight until the first conversion asks for one.
template <class T, int V> struct Raw {
  static constexpr int words = V / T::per_word;
  unsigned w[words];
};
// The vector at an address that is a multiple of its size, or of 16 bytes.
template <class T, int V> __device__ __forceinline__ Raw<T, V> load(const void* p, long long vector) {
  Raw<T, V> r;
  if constexpr (Raw<T, V>::words == 2) {
    uint2 u = static_cast<const uint2*>(p)[vector];
    r.w[0] = u.x, r.w[1] = u.y;
  } else {
#pragma unroll
    for (int i = 0; i < Raw<T, V>::words / 4; ++i) {
      uint4 u = static_cast<const uint4*>(p)[vector * (Raw<T, V>::words / 4) + i];
      r.w[4 * i] = u.x, r.w[4 * i + 1] = u.y, r.w[4 * i + 2] = u.z, r.w[4 * i + 3] = u.w;
    }
  }
  return r;
}
template <class T, int V> __device__ __forceinline__ void unpack(const Raw<T, V>& r, float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < Raw<T, V>::words; ++i) {
    if constexpr (T::per_word == 1) {
      v[i] = __uint_as_float(r.w[i]);
    } else {
      float2 f = T::unpack(r.w[i]);
      v[2 * i] = f.x, v[2 * i + 1] = f.y;
    }
  }
}
template <class T, int V> __device__ __forceinline__ void store(void* p, long long vector, const float (&v)[V]) {
  Raw<T, V> r;
#pragma unroll
  for (int i = 0; i < Raw<T, V>::words; ++i) {
    if constexpr (T::per_word == 1) r.w[i] = __float_as_uint(v[i]);
    else r.w[i] = T::pack(v[2 * i], v[2 * i + 1]);
  }
  if constexpr (Raw<T, V>::words == 2) {
    static_cast<uint2*>(p)[vector] = {r.w[0], r.w[1]};
  } else {
#pragma unroll
    for (int i = 0; i < Raw<T, V>::words / 4; ++i)
      static_cast<uint4*>(p)[vector * (Raw<T, V>::words / 4) + i] = {r.w[4 * i], r.w[4 * i + 1], r.w[4 * i + 2],
                                                                     r.w[4 * i + 3]};
  }
}

// ---- rows ----
template <class T> __device__ __forceinline__ const void* row_of(const void* p, long long row, long long stride) {
  return static_cast<const char*>(p) + row * stride * (4 / T::per_word);
}
template <class T> __device__ __forceinline__ void* row_of(void* p, long long row, long long stride) {
  return static_cast<char*>(p) + row * stride * (4 / T::per_word);
}

// The columns that a row sees.
__device__ __forceinline__ int visible(long long row, long long rows, long long offset, int columns) {
  long long n = row % rows + offset + 1;
  return n < 0 ? 0 : n > columns ? columns : int(n);
}

struct Sum {
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
struct Max {
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
// Over the threads that share a row, a warp or the block; every thread gets the result. The order is that of
// device_math.cuh. `slots` holds a value per warp; the block's next reduction must use others, because slow
// threads may still be reading these.
template <int Threads, class Op> __device__ __forceinline__ float over_row(float x, float* slots) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) x = Op::of(x, __shfl_xor_sync(~0u, x, mask));
  if constexpr (Threads > 32) {
    constexpr int warps = Threads / 32;
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
    __syncthreads();
    x = slots[threadIdx.x % warps];
#pragma unroll
    for (int mask = warps / 2; mask > 0; mask >>= 1) x = Op::of(x, __shfl_xor_sync(~0u, x, mask));
  }
  return x;
}

}  // namespace sinter::cuda

#endif
