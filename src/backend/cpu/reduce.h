// Sums and maxima over contiguous elements. Strict floating point forbids the compiler to reorder a sum; `omp simd
// reduction` allows it just here. The order is fixed at compile time, so results are reproducible.
#pragma once
#include "backend/cpu/fast_math.h"

namespace sinter::SINTER_CPU_ISA {

// Two chains of vector adds, to hide some of the latency of each.
template <class A, class F>
SINTER_INLINE A lane_sum(int64_t n, const F& term, A) {
  A s0 = 0, s1 = 0;
  int64_t half = n / 128 * 64;
#pragma omp simd reduction(+ : s0, s1)
  for (int64_t i = 0; i < half; ++i) {
    s0 += term(i);
    s1 += term(half + i);
  }
#pragma omp simd reduction(+ : s0)
  for (int64_t i = 2 * half; i < n; ++i) s0 += term(i);
  return s0 + s1;
}

template <class A, class F>
SINTER_INLINE A lane_max(int64_t n, const F& term, A least) {
  A m = least;
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) {
    A x = term(i);
    m = m < x ? x : m;
  }
  return m;
}

}  // namespace sinter::SINTER_CPU_ISA
