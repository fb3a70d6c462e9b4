// The pointwise functions, a strip of elements at a time.
#pragma once
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A>
using StripFunction = void (*)(A* out, const A* a, const A* b, const A* c, int64_t n, const AffineAttrs& affine);

// A function of elements (a lambda without captures) as a function of strips.
template <class A, class F> StripFunction<A> unary(F) {
  return [](A* out, const A* a, const A*, const A*, int64_t n, const AffineAttrs&) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i]);
  };
}
template <class A, class F> StripFunction<A> binary(F) {
  return [](A* out, const A* a, const A* b, const A*, int64_t n, const AffineAttrs&) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i], b[i]);
  };
}
template <class A> void affine(A* out, const A* a, const A*, const A*, int64_t n, const AffineAttrs& attrs) {
  A alpha = A(attrs.alpha), beta = A(attrs.beta);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * a[i] + beta;
}
template <class A> void where(A* out, const A* mask, const A* a, const A* b, int64_t n, const AffineAttrs&) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    A x = a[i], y = b[i];
    out[i] = mask[i] != A(0) ? x : y;
  }
}

// Φ, of the exact GELU x · Φ(x), whose slope is Φ(x) + x · φ(x).
template <class A> SINTER_INLINE A normal_cdf_of(A x) { return A(0.5) * (A(1) + erf_of(x * A(0.70710678118654752))); }
template <class A> SINTER_INLINE A normal_density_of(A x) { return A(0.39894228040143268) * exp_of(A(-0.5) * x * x); }

template <class A> SINTER_INLINE A silu_slope(A x) {
  A s = sigmoid_of(x);
  return s * (A(1) + x * (A(1) - s));
}

// Null for copy, which has nothing to compute.
template <class A> StripFunction<A> arithmetic_function(PointwiseFn fn) {
  switch (fn) {
    case PointwiseFn::add: return binary<A>([](A x, A y) { return x + y; });
    case PointwiseFn::sub: return binary<A>([](A x, A y) { return x - y; });
    case PointwiseFn::mul: return binary<A>([](A x, A y) { return x * y; });
    case PointwiseFn::where: return where<A>;
    default: return nullptr;
  }
}

template <class A> StripFunction<A> float_function(PointwiseFn fn) {
  switch (fn) {
    case PointwiseFn::div: return binary<A>([](A x, A y) { return x / y; });
    case PointwiseFn::neg: return unary<A>([](A x) { return -x; });
    case PointwiseFn::exp: return unary<A>([](A x) { return exp_of(x); });
    case PointwiseFn::log: return unary<A>([](A x) { return log_of(x); });
    case PointwiseFn::sqrt: return unary<A>([](A x) { return sqrt_of(x); });
    case PointwiseFn::rsqrt: return unary<A>([](A x) { return A(1) / sqrt_of(x); });
    case PointwiseFn::sigmoid: return unary<A>([](A x) { return sigmoid_of(x); });
    case PointwiseFn::silu: return unary<A>([](A x) { return x * sigmoid_of(x); });
    case PointwiseFn::gelu: return unary<A>([](A x) { return x * normal_cdf_of(x); });
    case PointwiseFn::tanh: return unary<A>([](A x) { return tanh_of(x); });
    case PointwiseFn::relu: return unary<A>([](A x) { return x < A(0) ? A(0) : x; });  // NaN passes
    case PointwiseFn::square: return unary<A>([](A x) { return x * x; });
    case PointwiseFn::affine: return affine<A>;
    case PointwiseFn::sigmoid_backward: return binary<A>([](A y, A dy) { return dy * y * (A(1) - y); });
    case PointwiseFn::tanh_backward: return binary<A>([](A y, A dy) { return dy * (A(1) - y * y); });
    case PointwiseFn::silu_backward: return binary<A>([](A x, A dy) { return dy * silu_slope(x); });
    case PointwiseFn::gelu_backward:
      return binary<A>([](A x, A dy) { return dy * (normal_cdf_of(x) + x * normal_density_of(x)); });
    case PointwiseFn::relu_backward: return binary<A>([](A x, A dy) { return x > A(0) ? dy : A(0); });
    default: return arithmetic_function<A>(fn);
  }
}

}  // namespace
}  // namespace sinter::SINTER_CPU_ISA
