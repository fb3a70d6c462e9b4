// Sums and maxima over contiguous elements. Strict floating point forbids the compiler to reorder a sum, so the order
// is spelt out: several vectors of partial sums. It depends on the instruction set, never on threads or alignment.
#pragma once
#include "backend/cpu/fast_math.h"

namespace sinter::SINTER_CPU_ISA {

#ifdef __AVX512F__
constexpr int vector_bytes = 64;
#else
constexpr int vector_bytes = 32;
#endif

template <class A> constexpr int64_t lanes = vector_bytes / int64_t(sizeof(A));

template <class A> struct IntegerOf { using Type = int64_t; };
template <> struct IntegerOf<float> { using Type = int32_t; };

// Σ term(at), where at(p) stands for p[i]: written once, run on whole vectors and on the single elements of the tail.
//   lane_sum<float>(n, [&](auto at) { return at(x) * at(y); })
template <class A, class F> SINTER_INLINE A lane_sum(int64_t n, const F& term) {
  typedef A Vector [[gnu::vector_size(vector_bytes)]];
  typedef typename IntegerOf<A>::Type Index [[gnu::vector_size(vector_bytes)]];
  constexpr int64_t L = lanes<A>, chains = 4;  // independent chains hide the latency of an add
  Vector sums[chains] = {};
  int64_t i = 0;
  auto vector_at = [&](int64_t c) SINTER_LAMBDA_INLINE {
    return [i, c](const A* p) SINTER_LAMBDA_INLINE {
      Vector v;
      __builtin_memcpy(&v, p + i + c * L, sizeof(v));
      return v;
    };
  };
  for (; i + chains * L <= n; i += chains * L)
    for (int64_t c = 0; c < chains; ++c) sums[c] += term(vector_at(c));
  for (; i + L <= n; i += L) sums[0] += term(vector_at(0));
  Vector v = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  A rest = 0;
  for (; i < n; ++i) rest += term([i](const A* p) SINTER_LAMBDA_INLINE { return p[i]; });
  Index lane;
  for (int64_t l = 0; l < L; ++l) lane[l] = typename IntegerOf<A>::Type(l);
  for (int64_t width = L / 2; width > 0; width /= 2)
    v += __builtin_shuffle(v, lane ^ typename IntegerOf<A>::Type(width));
  return v[0] + rest;
}

// The maximum of `least` and all term(i); NaN is passed over (it shows up in the sum that follows).
template <class A, class F> SINTER_INLINE A lane_max(int64_t n, const F& term, A least) {
  A m = least;
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) {
    A x = term(i);
    m = m < x ? x : m;
  }
  return m;
}

}  // namespace sinter::SINTER_CPU_ISA
