// Filling: constants, and random numbers that are a pure function of (seed, stream, index).
#include <cmath>

#include "core/half.h"
#include "core/philox.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr DeviceType cpu_device = DeviceType::cpu;

TEST(Fill, AnyTypeAnyStrides) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    Tensor x = zeros({3, 5}, t, cpu_device);
    fill(slice(x, 1, 1, 2), 1);
    EXPECT_EQ(to_vector(x), (Values{0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0})) << name_of(t);
  }
}

TEST(Random, NormalIsTheDocumentedFunctionOfItsCounter) {
  Tensor x = empty({1003}, DType::f32, cpu_device);
  fill_normal(x, 42, 7, 0.5, 3);
  Values v = to_vector(x);
  float low = normal_cdf(-3), high = normal_cdf(3);
  for (size_t i = 0; i < v.size(); ++i)  // word i % 4 of block i / 4
    ASSERT_NEAR(v[i], 0.5 * double(truncated_normal_of(philox(42, 7, i / 4).v[i % 4], low, high)), 1e-6) << i;
}

TEST(Random, PrefixOfALongerStreamIsTheSame) {
  for (DType t : {DType::f32, DType::bf16}) {
    Tensor a = empty({1000}, t, cpu_device), b = empty({77}, t, cpu_device);
    fill_normal(a, 1, 2, 1), fill_normal(b, 1, 2, 1);
    EXPECT_TRUE(same_bits(slice(a, 0, 0, 77), b));
  }
}

TEST(Random, TypesAreRoundingsOfTheSameNumbers) {
  Tensor wide = empty({5000}, DType::f32, cpu_device);
  fill_normal(wide, 3, 4, 0.1);
  for (DType t : {DType::bf16, DType::f16, DType::f64}) {
    Tensor x = empty({5000}, t, cpu_device);
    fill_normal(x, 3, 4, 0.1);
    EXPECT_TRUE(same_bits(x, cast(wide, t))) << name_of(t);
  }
}

TEST(Random, SeedsAndStreamsDiffer) {
  auto draw = [](uint64_t seed, uint64_t stream) {
    Tensor x = empty({64}, DType::f32, cpu_device);
    fill_normal(x, seed, stream, 1);
    return to_vector(x);
  };
  EXPECT_EQ(draw(1, 1), draw(1, 1));
  EXPECT_NE(draw(1, 1), draw(2, 1));
  EXPECT_NE(draw(1, 1), draw(1, 2));
  EXPECT_NE(draw(1, 1), draw(1 + (uint64_t(1) << 32), 1)) << "all 64 bits of the seed count";
}

TEST(Random, NormalMoments) {
  int n = 200000;
  Tensor x = empty({n}, DType::f32, cpu_device);
  fill_normal(x, 5, 6, 0.02, 3);
  double s1 = 0, s2 = 0, largest = 0;
  for (double v : to_vector(x)) s1 += v, s2 += v * v, largest = std::fmax(largest, std::fabs(v));
  EXPECT_NEAR(s1 / n / 0.02, 0, 0.01);
  EXPECT_NEAR(std::sqrt(s2 / n) / 0.02, std::sqrt(0.97334), 0.005);  // a normal cut at 3
  EXPECT_LE(largest, 0.06 * (1 + 1e-5));
}

TEST(Random, Uniform) {
  int n = 100000;
  Tensor x = empty({n}, DType::f32, cpu_device);
  fill_uniform(x, 5, 6, -2, 4);
  double s1 = 0, s2 = 0;
  for (double v : to_vector(x)) {
    ASSERT_GE(v, -2);
    ASSERT_LT(v, 4);
    s1 += v, s2 += v * v;
  }
  EXPECT_NEAR(s1 / n, 1, 0.03);
  EXPECT_NEAR(s2 / n, 4, 0.08);
}

TEST(Random, IntegersCoverTheirRangeEvenly) {
  for (DType t : {DType::i64, DType::i32}) {
    Tensor x = empty({60000}, t, cpu_device);
    fill_integers(x, 9, 9, -3, 3);
    int count[6] = {};
    for (double v : to_vector(x)) {
      ASSERT_TRUE(v >= -3 && v < 3);
      ++count[int(v) + 3];
    }
    for (int c : count) EXPECT_NEAR(c, 10000, 500);
  }
  Tensor x = empty({1}, DType::i64, cpu_device);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { fill_integers(x, 0, 0, 3, 3); }), {"fill_integers", "[3, 3)"}));
}

TEST(Random, RefusesStridedTensors) {
  Tensor x = transpose(zeros({2, 3}, DType::f32, cpu_device), 0, 1);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { fill_normal(x, 0, 0, 1); }), {"fill_normal", "contiguous"}));
}

}  // namespace
}  // namespace sinter
