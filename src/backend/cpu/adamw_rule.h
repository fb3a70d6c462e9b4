// AdamW, with which optim.cpp goes through flat buffers, and packed_product.cpp through the rows of a gradient's tile,
// which it never stores: the same bits.
#pragma once
#include <immintrin.h>

#include "backend/cpu/strips.h"
#include "backend/cpu/tile.h"

namespace sinter::SINTER_CPU_ISA {

template <class A> struct AdamWRule {
  A factor, keep, eps, beta1, beta2, rest1, rest2, rate, root;

  SINTER_INLINE AdamWRule(const AdamWAttrs& attrs, const double* state)
      : factor(A(state[state_grad_factor])),
        keep(A(1 - state[state_lr] * attrs.weight_decay)),
        eps(A(attrs.eps)),
        beta1(A(attrs.beta1)),
        beta2(A(attrs.beta2)),
        rest1(A(1 - attrs.beta1)),
        rest2(A(1 - attrs.beta2)),
        rate(A(state[state_lr] / (1 - __builtin_pow(attrs.beta1, state[state_step])))),
        root(A(1 / __builtin_sqrt(1 - __builtin_pow(attrs.beta2, state[state_step])))) {}

  // Of numbers or of vectors of them.
  template <class X> SINTER_INLINE void move(X& m, X& v, X gradient) const {
    X g = gradient * factor;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
  }
  SINTER_INLINE void update(A& p, A gradient, A& m, A& v) const {
    move(m, v, gradient);
    p = keep * p - rate * m / (sqrt_of(v) * root + eps);
  }
};

// What each instruction set guesses of 1 / √x and 1 / x.
#ifdef __AVX512F__
SINTER_INLINE Vector<float> guess_inverse_root(Vector<float> x) { return _mm512_maskz_rsqrt14_ps(0xffff, x); }
SINTER_INLINE Vector<float> guess_inverse(Vector<float> x) { return _mm512_maskz_rcp14_ps(0xffff, x); }
#else
SINTER_INLINE Vector<float> guess_inverse_root(Vector<float> x) { return _mm256_rsqrt_ps(x); }
SINTER_INLINE Vector<float> guess_inverse(Vector<float> x) { return _mm256_rcp_ps(x); }
#endif

// The same after a step of Newton's: the last bits may differ. x is neither 0 nor infinite.
SINTER_INLINE Vector<float> inverse_root(Vector<float> x) {
  Vector<float> y = guess_inverse_root(x);
  return y * (1.5f - 0.5f * x * y * y);
}
SINTER_INLINE Vector<float> inverse(Vector<float> x) {
  Vector<float> y = guess_inverse(x);
  return y * (2.0f - x * y);
}

// A vector of numbers. The exact root and quotient would keep the core from multiplying, where a
// tile is updated between GEMMs.
SINTER_INLINE void update_vector(const AdamWRule<float>& rule, float* p, const float* gradient, float* m, float* v) {
  Vector<float> mi = load_vector(m), vi = load_vector(v);
  rule.move(mi, vi, load_vector(gradient));
  store_vector(m, mi), store_vector(v, vi);
  Vector<float> x = vi < 1e-36f ? Vector<float>{} + 1e-36f : vi;
  Vector<float> quotient = mi * inverse(x * inverse_root(x) * rule.root + rule.eps);
  quotient = vi > __FLT_MAX__ ? mi * 0.0f : quotient;  // as of an infinite root; NaN if m is infinite too
  store_vector(p, rule.keep * load_vector(p) - rule.rate * quotient);
}

// Fewer than a vector, by one too: where rows end must not change bits. Apart from the loop over whole ones,
// which stands between GEMMs.
[[gnu::noinline]] static void update_rest(const AdamWRule<float>& rule, float* p, const float* gradient, float* m,
                                          float* v, int64_t n) {
  float rest[4][lanes<float>] = {};
  float* all[] = {p, m, v};
  for (int64_t j = 0; j < n; ++j) {
    for (int t = 0; t < 3; ++t) rest[t][j] = all[t][j];
    rest[3][j] = gradient[j];
  }
  update_vector(rule, rest[0], rest[3], rest[1], rest[2]);
  for (int64_t j = 0; j < n; ++j)
    for (int t = 0; t < 3; ++t) all[t][j] = rest[t][j];
}

SINTER_INLINE void update_row(const AdamWRule<float>& rule, float* p, const float* gradient, float* m, float* v,
                              int64_t n) {
  constexpr int64_t L = lanes<float>;
  int64_t i = 0;
  for (; i + L <= n; i += L) update_vector(rule, p + i, gradient + i, m + i, v + i);
  if (i < n) update_rest(rule, p + i, gradient + i, m + i, v + i, n - i);
}
SINTER_INLINE void update_row(const AdamWRule<double>& rule, double* p, const double* gradient, double* m, double* v,
                              int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) rule.update(p[i], gradient[i], m[i], v[i]);
}

}  // namespace sinter::SINTER_CPU_ISA
