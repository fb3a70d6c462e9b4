// exp, log, tanh and erf for fp32 without branches or table lookups, so that GCC vectorises the loops that
// call them; about 2 ulp. Infinities and NaN come out as from libm; results of exp below 2^-126 are flushed to
// 0, because denormals are slow on many CPUs and worth nothing in a softmax. fp64 goes to libm: it is for
// checking gradients, not for speed.
#pragma once
#include <cstdint>

#include "backend/cpu/isa.h"

#define SINTER_INLINE [[gnu::always_inline]] inline
#define SINTER_LAMBDA_INLINE __attribute__((always_inline))

namespace sinter::SINTER_CPU_ISA {

SINTER_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
SINTER_INLINE uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }

SINTER_INLINE float exp_of(float x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float round = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, which then lies in the low bits
  float y = x > 89.0f ? 89.0f : x;      // written so that NaN passes
  y = y < -88.0f ? -88.0f : y;
  float shifted = __builtin_fmaf(y, log2_e, round);
  float n = shifted - round;
  float r = __builtin_fmaf(n, -ln2_high, y);
  r = __builtin_fmaf(n, -ln2_low, r);
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r) + 1.0f;
  // 2^n in two factors, because 2^128 is no float but exp(88.7) is.
  int32_t k = int32_t(bits_of(shifted) - bits_of(round)), k1 = k >> 1, k2 = k - k1;
  float e = p * float_of(uint32_t(k1 + 127) << 23) * float_of(uint32_t(k2 + 127) << 23);
  return x < -87.3365448f ? 0.0f : e;
}

SINTER_INLINE float log_of(float x) {
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  bool tiny = x < 0x1p-126f;
  uint32_t u = bits_of(tiny ? x * 0x1p23f : x);
  int32_t e = int32_t(u - 0x3f3504f3u) >> 23;  // so that m lies in [sqrt(1/2), sqrt(2))
  float m = float_of(u - (uint32_t(e) << 23));
  float n = float(e) - (tiny ? 23.0f : 0.0f);
  float f = (m - 1.0f) / (m + 1.0f), f2 = f * f;  // log m = 2 atanh f
  float p = 0.2222222222f;
  p = __builtin_fmaf(f2, p, 0.2857142857f);
  p = __builtin_fmaf(f2, p, 0.4f);
  p = __builtin_fmaf(f2, p, 0.6666666667f);
  float log_m = __builtin_fmaf(f, f2 * p, 2.0f * f);
  float y = __builtin_fmaf(n, ln2_high, __builtin_fmaf(n, ln2_low, log_m));
  y = x == 0.0f ? -__builtin_inff() : y;
  y = x == __builtin_inff() ? x : y;
  return x >= 0.0f ? y : __builtin_nanf("");
}

SINTER_INLINE float tanh_of(float x) {
  float a = __builtin_fabsf(x), x2 = x * x;
  float p = -5.70498872745e-3f;  // near 0, where the other form cancels
  p = __builtin_fmaf(p, x2, 2.06390887954e-2f);
  p = __builtin_fmaf(p, x2, -5.37397155531e-2f);
  p = __builtin_fmaf(p, x2, 1.33314422036e-1f);
  p = __builtin_fmaf(p, x2, -3.33332819422e-1f);
  p = __builtin_fmaf(p * x2, x, x);
  float e = 1.0f - 2.0f / (exp_of(2.0f * a) + 1.0f);
  return a < 0.625f ? p : __builtin_copysignf(e, x);
}

// N. Juffa's two minimax forms: a polynomial near 0, else 1 − exp(polynomial).
SINTER_INLINE float erf_of(float x) {
  float t = __builtin_fabsf(x), s = x * x;
  float far = __builtin_fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
  far = __builtin_fmaf(far, s, __builtin_fmaf(-3.88396438e-3f, t, 2.42546219e-2f));
  far = __builtin_fmaf(far, t, -1.06777877e-1f);
  far = __builtin_fmaf(far, t, -6.34846687e-1f);
  far = __builtin_fmaf(far, t, -1.28717512e-1f);
  far = __builtin_fmaf(far, t, -t);
  far = 1.0f - exp_of(far);
  float near = -5.96761703e-4f;
  near = __builtin_fmaf(near, s, 4.99119423e-3f);
  near = __builtin_fmaf(near, s, -2.67681349e-2f);
  near = __builtin_fmaf(near, s, 1.12819925e-1f);
  near = __builtin_fmaf(near, s, -3.76125336e-1f);
  near = __builtin_fmaf(near, s, 1.28379166e-1f);
  near = __builtin_fmaf(near, x, x);
  return t > 0.921875f ? __builtin_copysignf(far, x) : near;
}

SINTER_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }

SINTER_INLINE double exp_of(double x) { return __builtin_exp(x); }
SINTER_INLINE double log_of(double x) { return __builtin_log(x); }
SINTER_INLINE double tanh_of(double x) { return __builtin_tanh(x); }
SINTER_INLINE double erf_of(double x) { return __builtin_erf(x); }
SINTER_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }

template <class A> SINTER_INLINE A sigmoid_of(A x) { return A(1) / (A(1) + exp_of(-x)); }

template <class A> SINTER_INLINE A min_of(A a, A b) { return b < a ? b : a; }
template <class A> SINTER_INLINE A max_of(A a, A b) { return a < b ? b : a; }

}  // namespace sinter::SINTER_CPU_ISA
