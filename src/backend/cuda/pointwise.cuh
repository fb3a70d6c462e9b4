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

template <int N> __device__ __forceinline__ void apply(const PointwiseOp& op, float (&r)[N], const float (&in)[1][N]) {
  auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = f(in[0][i]);
  };
  switch (op.fn) {
    case PointwiseFn::neg: return each([](float x) { return fn::neg(x); });
    case PointwiseFn::exp: return each([](float x) { return fn::exp(x); });
    case PointwiseFn::log: return each([](float x) { return fn::log(x); });
    case PointwiseFn::sqrt: return each([](float x) { return fn::sqrt(x); });
    case PointwiseFn::rsqrt: return each([](float x) { return fn::rsqrt(x); });
    case PointwiseFn::sigmoid: return each([](float x) { return fn::sigmoid(x); });
    case PointwiseFn::silu: return each([](float x) { return fn::silu(x); });
    case PointwiseFn::gelu: return each([](float x) { return fn::gelu(x); });
    case PointwiseFn::tanh: return each([](float x) { return fn::tanh(x); });
    case PointwiseFn::relu: return each([](float x) { return fn::relu(x); });
    case PointwiseFn::square: return each([](float x) { return fn::square(x); });
    case PointwiseFn::affine: return each([&](float x) { return fn::affine(x, op.alpha, op.beta); });
    default: return each([](float x) { return x; });  // copy
  }
}

template <int N> __device__ __forceinline__ void apply(const PointwiseOp& op, float (&r)[N], const float (&in)[2][N]) {
  auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) r[i] = f(in[0][i], in[1][i]);
  };
  switch (op.fn) {
    case PointwiseFn::sub: return each([](float a, float b) { return fn::sub(a, b); });
    case PointwiseFn::mul: return each([](float a, float b) { return fn::mul(a, b); });
    case PointwiseFn::div: return each([](float a, float b) { return fn::div(a, b); });
    case PointwiseFn::sigmoid_backward: return each([](float a, float b) { return fn::sigmoid_backward(a, b); });
    case PointwiseFn::silu_backward: return each([](float a, float b) { return fn::silu_backward(a, b); });
    case PointwiseFn::gelu_backward: return each([](float a, float b) { return fn::gelu_backward(a, b); });
    case PointwiseFn::tanh_backward: return each([](float a, float b) { return fn::tanh_backward(a, b); });
    case PointwiseFn::relu_backward: return each([](float a, float b) { return fn::relu_backward(a, b); });
    default: return each([](float a, float b) { return fn::add(a, b); });
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

// Types that the four-element kernels can carry through fp32 (int32 only where it meets
// floats: it does not fit exactly).
constexpr bool fits_raw4(DType t) { return size_of(t) <= 4; }

// pointwise_strided.cu: everything that is not flat, fp32-computed and aligned.
void pointwise_strided(const KernelCall& call, const PointwiseOp& op);

}  // namespace sinter::cuda
