// Random numbers: known answers, the normal's quantile against an independent inverse, moments.
#include "core/philox.h"

#include <cmath>
#include <gtest/gtest.h>

namespace sinter {
namespace {

void expect_block(PhiloxBlock b, uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3) {
  EXPECT_EQ(b.v[0], v0);
  EXPECT_EQ(b.v[1], v1);
  EXPECT_EQ(b.v[2], v2);
  EXPECT_EQ(b.v[3], v3);
}

// The known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox, KnownAnswers) {
  expect_block(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_block(philox(~0ull, ~0ull, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_block(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull), 0xd16cfe09, 0x94fdcceb,
               0x5001e420, 0x24126ea1);
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(uniform_of(0), 0.0f);
  EXPECT_LT(uniform_of(~0u), 1.0f);
  EXPECT_EQ(integer_of(~0u, 10), 9u);
  EXPECT_EQ(integer_of(0, 10), 0u);
}

// Newton on erfc in float64: no formula in common with the tested one.
double quantile(double p) {
  double x = 0;
  for (int i = 0; i < 200; ++i) {
    double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0)), density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    double step = (cdf - p) / density;
    x -= std::fmax(-0.5, std::fmin(0.5, step));
    if (std::fabs(step) < 1e-14) break;
  }
  return x;
}

TEST(Philox, NormalQuantile) {
  for (int i = 1; i < 4000; ++i) {
    float p = float(i) / 4000;
    double expected = quantile(double(p));
    EXPECT_NEAR(normal_quantile(p), expected, 4e-7 * (1 + std::fabs(expected))) << "p = " << p;
  }
  for (float p : {0x1p-26f, 0x1p-20f, 1e-5f, 1e-4f, 0.00135f, 0.07499f, 0.0751f, 0.92499f, 0.9251f, 0.99865f}) {
    double expected = quantile(double(p));
    EXPECT_NEAR(normal_quantile(p), expected, 1e-6 * (1 + std::fabs(expected))) << "p = " << p;
  }
}

TEST(Philox, NormalQuantileIsMonotone) {
  float before = -100;
  for (int i = 1; i < 100000; ++i) {
    float x = normal_quantile(float(i) / 100000);
    ASSERT_GE(x, before - 1e-6f) << i;
    before = x;
  }
}

TEST(Philox, TruncatedNormalHasItsMomentsAndItsCut) {
  for (double cut : {1.0, 3.0}) {
    float low = normal_cdf(-cut), high = normal_cdf(cut);
    double s1 = 0, s2 = 0, s4 = 0, largest = 0;
    int n = 400000;
    for (int i = 0; i < n; ++i) {
      double x = truncated_normal_of(philox(7, 1, uint64_t(i)).v[i % 4], low, high);
      s1 += x, s2 += x * x, s4 += x * x * x * x, largest = std::fmax(largest, std::fabs(x));
    }
    double mass = double(high) - double(low), density = std::exp(-cut * cut / 2) / std::sqrt(2 * std::acos(-1.0));
    double variance = 1 - 2 * cut * density / mass, fourth = 3 * variance - 2 * cut * cut * cut * density / mass;
    EXPECT_NEAR(s1 / n, 0, 0.007);
    EXPECT_NEAR(s2 / n, variance, 0.01);
    EXPECT_NEAR(s4 / n, fourth, 0.05);
    EXPECT_LE(largest, cut * (1 + 1e-5));
    EXPECT_GT(largest, cut * 0.98) << "the tails are there";
  }
}

TEST(Philox, EndsOfTheRangeAreFinite) {
  for (uint32_t bits : {0u, 255u, 256u, ~0u}) EXPECT_TRUE(std::isfinite(truncated_normal_of(bits, 0, 1))) << bits;
}

}  // namespace
}  // namespace sinter
