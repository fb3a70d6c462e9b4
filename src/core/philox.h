// Counter-based random numbers: element i of a stream is a pure function of (seed, stream, i), so any number of
// threads, devices or ranks draws the same bits.
//
// Note [Same bits everywhere]: normals need log and sqrt. We invert the normal distribution (Wichura's AS 241, the
// single-precision PPND7) with a log of our own; every multiply-add is written as an explicit fma, division and square
// root are correctly rounded on both sides, and files that include this header are compiled with contraction off
// (-ffp-contract=off, nvcc -fmad=false). So a CPU and a GPU agree to the last bit.
#pragma once
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define SINTER_HD __host__ __device__ __forceinline__
#else
#define SINTER_HD [[gnu::always_inline]] inline
#endif

namespace sinter {

struct PhiloxBlock {
  uint32_t v[4];
};

// Philox4x32-10 (Salmon et al. 2011): counter (index, stream), key seed.
SINTER_HD PhiloxBlock philox(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// [0, 1): the top 24 bits.
SINTER_HD float uniform_of(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// [low, low + range): range up to 2^32.
SINTER_HD uint64_t integer_of(uint32_t bits, uint64_t range) { return (uint64_t(bits) * range) >> 32; }

namespace philox_detail {

SINTER_HD float bits_to_float(uint32_t u) {
  union {
    uint32_t u;
    float f;
  } x;
  x.u = u;
  return x.f;
}
SINTER_HD uint32_t float_to_bits(float f) {
  union {
    float f;
    uint32_t u;
  } x;
  x.f = f;
  return x.u;
}

// Natural logarithm for normal positive x, about 2 ulp.
SINTER_HD float log_of(float x) {
  uint32_t u = float_to_bits(x);
  int e = int(u >> 23) - 127;
  float m = bits_to_float((u & 0x007fffffu) | 0x3f800000u);  // [1, 2)
  if (m > 1.41421356f) {
    m *= 0.5f;
    e += 1;
  }
  float f = (m - 1.0f) / (m + 1.0f), f2 = f * f;  // log m = 2 atanh f
  float p = fmaf(f2, 0.2222222222f, 0.2857142857f);
  p = fmaf(f2, p, 0.4f);
  p = fmaf(f2, p, 0.6666666667f);
  p = f2 * p;
  float log_m = fmaf(f, p, 2.0f * f);
  return fmaf(float(e), 0.693147182f, log_m);
}

}  // namespace philox_detail

// The quantile function of the standard normal for p in (0, 1), relative error about 1e-7 (PPND7).
SINTER_HD float normal_quantile(float p) {
  float q = p - 0.5f;
  if (fabsf(q) <= 0.425f) {
    float r = fmaf(-q, q, 0.180625f);
    float num = fmaf(fmaf(fmaf(59.109374720f, r, 159.29113202f), r, 50.434271938f), r, 3.3871327179f);
    float den = fmaf(fmaf(fmaf(67.187563600f, r, 78.757757664f), r, 17.895169469f), r, 1.0f);
    return q * num / den;
  }
  float r = q < 0 ? p : 1.0f - p;
  r = sqrtf(-philox_detail::log_of(r));
  float num, den;
  if (r <= 5.0f) {
    r -= 1.6f;
    num = fmaf(fmaf(fmaf(0.17023821103f, r, 1.3067284816f), r, 2.7568153900f), r, 1.4234372777f);
    den = fmaf(fmaf(0.12021132975f, r, 0.73700164250f), r, 1.0f);
  } else {
    r -= 5.0f;
    num = fmaf(fmaf(fmaf(0.017337203997f, r, 0.42868294337f), r, 3.0812263860f), r, 6.6579051150f);
    den = fmaf(fmaf(0.012258202635f, r, 0.24197894225f), r, 1.0f);
  }
  float x = num / den;
  return q < 0 ? -x : x;
}

// A standard normal cut to [low, high] by mapping the uniform into [Φ(low), Φ(high)] (p_low, p_high, from the host).
// Half a step is added so that p is never 0 or 1.
SINTER_HD float truncated_normal_of(uint32_t bits, float p_low, float p_high) {
  float u = fmaf(float(bits >> 8), 0x1p-24f, 0x1p-25f);
  return normal_quantile(fmaf(u, p_high - p_low, p_low));
}

// Φ(x) on the host, for the two ends above.
inline float normal_cdf(double x) { return float(0.5 * std::erfc(-x * 0.70710678118654752440)); }

}  // namespace sinter
