// The functions of the pointwise family, on N elements at a time: the switch is outside the loop over elements, so one
// kernel serves the family at the price of one uniform jump per thread.
#pragma once
#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"

namespace sinter::cuda {

struct PointwiseOp {
  PointwiseFn fn;
  bool accumulate;
  float alpha, beta;  // of affine
};

// Φ(x), of the exact (erf) GELU.
__device__ __forceinline__ float normal_cdf_of(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }
__device__ __forceinline__ float gelu_slope(float x) {
  return normal_cdf_of(x) + x * 0.39894228f * expf(-0.5f * x * x);
}

template <int N> __device__ __forceinline__ void apply(const PointwiseOp& op, float (&r)[N], const float (&in)[1][N]) {
  auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = f(in[0][i]);
  };
  switch (op.fn) {
    case PointwiseFn::neg: return each([](float x) { return -x; });
    case PointwiseFn::exp: return each([](float x) { return expf(x); });
    case PointwiseFn::log: return each([](float x) { return logf(x); });
    case PointwiseFn::sqrt: return each([](float x) { return sqrtf(x); });
    case PointwiseFn::rsqrt: return each([](float x) { return rsqrtf(x); });
    case PointwiseFn::sigmoid: return each([](float x) { return sigmoid(x); });
    case PointwiseFn::silu: return each([](float x) { return x * sigmoid(x); });
    case PointwiseFn::gelu: return each([](float x) { return x * normal_cdf_of(x); });
    case PointwiseFn::tanh: return each([](float x) { return tanhf(x); });
    case PointwiseFn::relu: return each([](float x) { return x < 0.0f ? 0.0f : x; });  // NaN stays NaN
    case PointwiseFn::square: return each([](float x) { return x * x; });
    case PointwiseFn::affine: return each([&](float x) { return fmaf(op.alpha, x, op.beta); });
    default: return each([](float x) { return x; });  // copy
  }
}

template <int N> __device__ __forceinline__ void apply(const PointwiseOp& op, float (&r)[N], const float (&in)[2][N]) {
  auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = f(in[0][i], in[1][i]);
  };
  switch (op.fn) {
    case PointwiseFn::sub: return each([](float a, float b) { return a - b; });
    case PointwiseFn::mul: return each([](float a, float b) { return a * b; });
    case PointwiseFn::div: return each([](float a, float b) { return a / b; });
    case PointwiseFn::sigmoid_backward: return each([](float y, float dy) { return dy * y * (1.0f - y); });
    case PointwiseFn::silu_backward:
      return each([](float x, float dy) {
        float s = sigmoid(x);
        return dy * s * (1.0f + x * (1.0f - s));
      });
    case PointwiseFn::gelu_backward: return each([](float x, float dy) { return dy * gelu_slope(x); });
    case PointwiseFn::tanh_backward: return each([](float y, float dy) { return dy * (1.0f - y * y); });
    case PointwiseFn::relu_backward: return each([](float x, float dy) { return x > 0.0f ? dy : 0.0f; });
    default: return each([](float a, float b) { return a + b; });  // add
  }
}

template <int N> __device__ __forceinline__ void apply(const PointwiseOp&, float (&r)[N], const float (&in)[3][N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = in[0][i] != 0.0f ? in[1][i] : in[2][i];  // where
}

constexpr int inputs_of(PointwiseFn fn) {
  if (fn <= PointwiseFn::div) return 2;
  if (fn <= PointwiseFn::affine) return 1;
  return fn == PointwiseFn::where ? 3 : 2;
}

// Types that the four-element kernels can carry through fp32 (int32 only where it meets floats: it does not fit exactly).
constexpr bool fits_raw4(DType t) { return size_of(t) <= 4; }

// pointwise_strided.cu: everything that is not flat, fp32-computed and aligned.
void pointwise_strided(const KernelCall& call, const PointwiseOp& op);

}  // namespace sinter::cuda
