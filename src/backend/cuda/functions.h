// Functions of elements: one text for our kernels (nvcc), for generated ones (NVRTC reads it ahead of them) and for the
// tests that run generated kernels as C++ (g++). NVRTC has no headers to include, so there is no #include here.
#ifndef SINTER_BACKEND_CUDA_FUNCTIONS_H
#define SINTER_BACKEND_CUDA_FUNCTIONS_H

namespace sinter::cuda {

// 2^x by the special-function unit, 2 ulp; results below 2^-126 become 0, which no sum of exponentials notices.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
constexpr float log2_e = 1.44269504f, ln_2 = 0.69314718f;
// Two special-function instructions: at 6 bytes per element a precise division would already bind SwiGLU.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + fast_exp2(-log2_e * x)); }

// Φ(x), of the exact (erf) GELU.
__device__ __forceinline__ float normal_cdf_of(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }

// The pointwise family. Sums and products that stand at the edge of a function are rounded on their own (_rn), never
// contracted with what comes before or after: a fused chain in fp32 has the same bits as its calls one by one.
namespace fn {
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float div(float a, float b) { return a / b; }
__device__ __forceinline__ float copy(float x) { return x; }
__device__ __forceinline__ float neg(float x) { return -x; }
__device__ __forceinline__ float exp(float x) { return expf(x); }
__device__ __forceinline__ float log(float x) { return logf(x); }
__device__ __forceinline__ float sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ float rsqrt(float x) { return rsqrtf(x); }
__device__ __forceinline__ float sigmoid(float x) { return cuda::sigmoid(x); }
__device__ __forceinline__ float silu(float x) { return __fmul_rn(x, cuda::sigmoid(x)); }
__device__ __forceinline__ float gelu(float x) { return __fmul_rn(x, normal_cdf_of(x)); }
__device__ __forceinline__ float tanh(float x) { return tanhf(x); }
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
__device__ __forceinline__ float square(float x) { return __fmul_rn(x, x); }
__device__ __forceinline__ float affine(float x, float alpha, float beta) { return fmaf(alpha, x, beta); }
__device__ __forceinline__ float sigmoid_backward(float y, float dy) { return __fmul_rn(dy * y, __fsub_rn(1.0f, y)); }
__device__ __forceinline__ float silu_backward(float x, float dy) {
  float s = cuda::sigmoid(x);
  return __fmul_rn(dy * s, 1.0f + x * (1.0f - s));
}
__device__ __forceinline__ float gelu_backward(float x, float dy) {
  return __fmul_rn(dy, normal_cdf_of(x) + x * 0.39894228f * expf(-0.5f * x * x));
}
__device__ __forceinline__ float tanh_backward(float y, float dy) { return __fmul_rn(dy, 1.0f - y * y); }
__device__ __forceinline__ float relu_backward(float x, float dy) { return x > 0.0f ? dy : 0.0f; }
}  // namespace fn

}  // namespace sinter::cuda

#endif
