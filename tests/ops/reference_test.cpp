// What the operations mean, against formulas written out here in plain loops.
#include <cmath>

#include "autograd/tape.h"
#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

constexpr double exact = 1e-13;

TEST(Reference, PointwiseFunctions) {
  Rng rng(1);
  Values x = normals(rng, 37), p;
  for (double v : x) p.push_back(std::fabs(v) + 0.1);
  Tensor tx = tensor_of(x, {37}, DType::f64), tp = tensor_of(p, {37}, DType::f64);
  auto expect = [](const char* name, const Tensor& actual, const Values& in, double (*f)(double)) {
    Values expected;
    for (double v : in) expected.push_back(f(v));
    EXPECT_TRUE(near(to_vector(actual), expected, exact, 1e-15)) << name;
  };
  expect("neg", neg(tx), x, [](double v) { return -v; });
  expect("exp", exp(tx), x, [](double v) { return std::exp(v); });
  expect("log", log(tp), p, [](double v) { return std::log(v); });
  expect("sqrt", sqrt(tp), p, [](double v) { return std::sqrt(v); });
  expect("rsqrt", rsqrt(tp), p, [](double v) { return 1 / std::sqrt(v); });
  expect("sigmoid", sigmoid(tx), x, [](double v) { return 1 / (1 + std::exp(-v)); });
  expect("silu", silu(tx), x, [](double v) { return v / (1 + std::exp(-v)); });
  expect("tanh", tanh(tx), x, [](double v) { return std::tanh(v); });
  expect("relu", relu(tx), x, [](double v) { return v > 0 ? v : 0; });
  expect("square", square(tx), x, [](double v) { return v * v; });
  expect("affine", affine(tx, 3, -2), x, [](double v) { return 3 * v - 2; });
  expect("gelu", gelu(tx), x, [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); });
}

// Extreme arguments, where a fast approximation goes wrong first.
TEST(Reference, PointwiseAtTheEnds) {
  for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    Tensor big = tensor_of({-1e4, -100, -20, 0, 20, 100, 1e4}, {7}, type);
    EXPECT_TRUE(near(to_vector(sigmoid(big)), {0, 0, 2.06e-9, 0.5, 1, 1, 1}, 0.01, 1e-7)) << name_of(type);
    EXPECT_TRUE(near(to_vector(tanh(big)), {-1, -1, -1, 0, 1, 1, 1}, 1e-6, 0)) << name_of(type);
    EXPECT_TRUE(near(to_vector(silu(big)), {0, 0, 0, 0, 20, 100, to_vector(big)[6]}, 1e-5, 1e-7)) << name_of(type);
    EXPECT_TRUE(near(to_vector(gelu(big)), {0, 0, 0, 0, 20, 100, to_vector(big)[6]}, 1e-5, 1e-7)) << name_of(type);
    EXPECT_EQ(to_vector(exp(tensor_of({-INFINITY, 0}, {2}, type))), (Values{0, 1})) << name_of(type);
    EXPECT_TRUE(std::isinf(item(exp(tensor_of({1e4}, {1}, type)))));
  }
  for (const Tensor& t : {exp(tensor_of({NAN}, {1}, DType::f32)), relu(tensor_of({NAN}, {1}, DType::f32)),
                          tanh(tensor_of({NAN}, {1}, DType::f32)), silu(tensor_of({NAN}, {1}, DType::bf16))})
    EXPECT_TRUE(std::isnan(item(t))) << "a NaN must not get lost";
}

TEST(Reference, TwoInputsBroadcastFromTheRight) {
  Rng rng(2);
  Tensor a = random_tensor(rng, {2, 1, 3}, DType::f64), b = random_tensor(rng, {4, 1}, DType::f64);
  Values va = to_vector(a), vb = to_vector(b), sums, differences, products, quotients;
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 4; ++j)
      for (size_t k = 0; k < 3; ++k) {
        double x = va[i * 3 + k], y = vb[j];
        sums.push_back(x + y), differences.push_back(x - y), products.push_back(x * y), quotients.push_back(x / y);
      }
  EXPECT_EQ((a + b).dims(), (Dims{2, 4, 3}));
  EXPECT_TRUE(near(to_vector(a + b), sums, exact, 0));
  EXPECT_TRUE(near(to_vector(a - b), differences, exact, 0));
  EXPECT_TRUE(near(to_vector(a * b), products, exact, 0));
  EXPECT_TRUE(near(to_vector(a / b), quotients, exact, 0));
}

TEST(Reference, IntegersAddSubtractMultiply) {
  Tensor a = from_vector<int64_t>({5, -7, 1}, {3}, DeviceType::cpu),
         b = from_vector<int64_t>({2, 3, 4}, {3}, DeviceType::cpu);
  EXPECT_EQ(to_vector(a + b), (Values{7, -4, 5}));
  EXPECT_EQ(to_vector(a - b), (Values{3, -10, -3}));
  EXPECT_EQ(to_vector(a * b), (Values{10, -21, 4}));
  EXPECT_EQ((a + b).dtype(), DType::i64);
}

TEST(Reference, Where) {
  Tensor mask = tensor_of({1, 0, 1}, {3}, DType::boolean);
  Tensor a = tensor_of({1, NAN, 3}, {3}, DType::f32), b = tensor_of({-1, -2, NAN}, {3}, DType::f32);
  EXPECT_EQ(to_vector(where(mask, a, b)), (Values{1, -2, 3}));
}

TEST(Reference, CastsRoundToNearestEven) {
  Tensor x = tensor_of({1 + 0x1p-8, 1 + 3 * 0x1p-8, 65504, 65520, 1e-8, -0.0}, {6}, DType::f32);
  EXPECT_EQ(to_vector(cast(x, DType::bf16))[0], 1.0);
  EXPECT_EQ(to_vector(cast(x, DType::bf16))[1], 1 + 4 * 0x1p-8);
  EXPECT_EQ(to_vector(cast(x, DType::f16))[2], 65504.0);
  EXPECT_TRUE(std::isinf(to_vector(cast(x, DType::f16))[3]));
  EXPECT_EQ(to_vector(cast(x, DType::f16))[4], 0.0);
  EXPECT_TRUE(std::signbit(to_vector(cast(x, DType::bf16))[5]));
  // From fp64 in one rounding: just above a tie of bf16, which fp32 would turn into the tie.
  double above_tie = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_NEAR(item(cast(tensor_of({above_tie}, {1}, DType::f64), DType::bf16)), above_tie, 0x1.01p-8);
}

TEST(Reference, Reductions) {
  Rng rng(3);
  Tensor x = random_tensor(rng, {3, 4, 5}, DType::f64);
  Values v = to_vector(x), over1(15, 0.0);
  double total = 0;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 4; ++j)
      for (size_t k = 0; k < 5; ++k) over1[i * 5 + k] += v[(i * 4 + j) * 5 + k], total += v[(i * 4 + j) * 5 + k];
  EXPECT_EQ(sum(x, {1}).dims(), (Dims{3, 5}));
  EXPECT_EQ(sum(x, {-2}, true).dims(), (Dims{3, 1, 5}));
  EXPECT_TRUE(near(to_vector(sum(x, {1})), over1, exact, exact));
  EXPECT_EQ(sum(x).rank(), 0);
  EXPECT_NEAR(item(sum(x)), total, 1e-12);
  EXPECT_NEAR(item(mean(x)), total / 60, 1e-13);
  for (double& s : over1) s /= 4;
  EXPECT_TRUE(near(to_vector(mean(x, {1})), over1, exact, exact));
}

TEST(Reference, SumsOf16BitNumbersAreKeptInFp32) {
  EXPECT_EQ(item(sum(full({10000}, 1, DType::f16, DeviceType::cpu))), 10000);  // fp16 alone stops at 2048
  EXPECT_NEAR(item(sum(full({1000}, 0.01, DType::f16, DeviceType::cpu))), 10, 0.01);
}

TEST(Reference, MatmulWithTransposesAndBatches) {
  Rng rng(4);
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      int64_t m = 5, n = 7, k = 6;
      Tensor a = random_tensor(rng, ta ? Dims{2, 3, k, m} : Dims{2, 3, m, k}, DType::f64);
      Tensor b = random_tensor(rng, tb ? Dims{2, 3, n, k} : Dims{2, 3, k, n}, DType::f64);
      Values va = to_vector(a), vb = to_vector(b), expected;
      for (int64_t batch = 0; batch < 6; ++batch)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double s = 0;
            for (int64_t l = 0; l < k; ++l)
              s += va[size_t(batch * m * k + (ta ? l * m + i : i * k + l))] *
                   vb[size_t(batch * n * k + (tb ? j * k + l : l * n + j))];
            expected.push_back(s);
          }
      EXPECT_EQ(matmul(a, b, ta, tb).dims(), (Dims{2, 3, m, n}));
      EXPECT_TRUE(near(to_vector(matmul(a, b, ta, tb)), expected, exact, exact)) << ta << tb;
    }
}

TEST(Reference, LinearIsXTimesWeightTransposed) {
  Tensor x = tensor_of({1, 2, 3, 4, 5, 6}, {1, 2, 3}, DType::f64),
         w = tensor_of({1, 0, 0, 0, 1, 1}, {2, 3}, DType::f64);
  EXPECT_EQ(to_vector(linear(x, w)), (Values{1, 5, 4, 11}));
}

TEST(Reference, ProductsPadOddRows) {
  Rng rng(5);
  Tensor x = random_tensor(rng, {3, 8}, DType::bf16), w = random_tensor(rng, {101, 8}, DType::bf16);
  Tensor y = linear(x, w);
  EXPECT_EQ(y.dims(), (Dims{3, 101}));
  EXPECT_EQ(y.stride(0) * 2 % 128, 0) << "rows begin at multiples of 128 bytes";
}

TEST(Reference, RmsNorm) {
  Rng rng(6);
  Tensor x = random_tensor(rng, {4, 9}, DType::f64), w = random_tensor(rng, {9}, DType::f64);
  Values vx = to_vector(x), vw = to_vector(w), expected;
  for (size_t r = 0; r < 4; ++r) {
    double s = 0;
    for (size_t i = 0; i < 9; ++i) s += vx[r * 9 + i] * vx[r * 9 + i];
    for (size_t i = 0; i < 9; ++i) expected.push_back(vx[r * 9 + i] / std::sqrt(s / 9 + 1e-3) * vw[i]);
  }
  EXPECT_TRUE(near(to_vector(rms_norm(x, w, 1e-3)), expected, exact, exact));
}

// The experiment that shows why norms stay in fp32: squares of 300 leave fp16.
TEST(Reference, StatisticsIn16BitsOverflow) {
  Tensor x = full({2, 64}, 300, DType::f16, DeviceType::cpu), w = full({64}, 1, DType::f16, DeviceType::cpu);
  auto norm_with = [&](bool low) {
    return to_vector(dispatch(ops::rms_norm, Attrs::of(NormAttrs{1e-5, low}), x, w)[0]);
  };
  EXPECT_EQ(norm_with(false), Values(128, 1.0));
  EXPECT_EQ(norm_with(true), Values(128, 0.0)) << "an infinite sum has a reciprocal of 0";
}

TEST(Reference, LayerNorm) {
  Rng rng(7);
  Tensor x = affine(random_tensor(rng, {4, 9}, DType::f64), 1, 100);  // a mean far from 0
  Tensor w = random_tensor(rng, {9}, DType::f64), b = random_tensor(rng, {9}, DType::f64);
  Values vx = to_vector(x), vw = to_vector(w), vb = to_vector(b), expected;
  for (size_t r = 0; r < 4; ++r) {
    double m = 0, s = 0;
    for (size_t i = 0; i < 9; ++i) m += vx[r * 9 + i] / 9;
    for (size_t i = 0; i < 9; ++i) s += (vx[r * 9 + i] - m) * (vx[r * 9 + i] - m) / 9;
    for (size_t i = 0; i < 9; ++i) expected.push_back((vx[r * 9 + i] - m) / std::sqrt(s + 1e-5) * vw[i] + vb[i]);
  }
  EXPECT_TRUE(near(to_vector(layer_norm(x, w, b)), expected, 1e-11, 1e-11));
  Tensor single = layer_norm(cast(x, DType::f32), cast(w, DType::f32), cast(b, DType::f32));
  EXPECT_TRUE(near(to_vector(single), expected, 1e-4, 1e-4)) << "fp32 must not lose the variance to the mean";
}

TEST(Reference, SoftmaxMasksAndSurvivesLargeScores) {
  Tensor s = tensor_of({1, 2, 3, 1000, -1000, 999, 5, 5, 5}, {3, 3}, DType::f64);
  double a = std::exp(-2.0), b = std::exp(-1.0), z = 1 + a + b, q = std::exp(-1.0);
  EXPECT_TRUE(near(to_vector(softmax(s)), {a / z, b / z, 1 / z, 1 / (1 + q), 0, q / (1 + q), 1. / 3, 1. / 3, 1. / 3},
                   exact, exact));
  EXPECT_TRUE(near(to_vector(softmax(s, {1, true, 0})), {1, 0, 0, 1, 0, 0, 1. / 3, 1. / 3, 1. / 3}, exact, exact));
  EXPECT_TRUE(near(to_vector(softmax(s, {1, true, -1})), {0, 0, 0, 1, 0, 0, 0.5, 0.5, 0}, exact, exact))
      << "a row that sees nothing is zero";
  EXPECT_TRUE(near(to_vector(softmax(s, {0.5, false, 0})), to_vector(softmax(affine(s, 0.5, 0))), exact, exact));
  Tensor dead = tensor_of({-INFINITY, 0, -INFINITY, -INFINITY}, {2, 2}, DType::f32);
  EXPECT_EQ(to_vector(slice(softmax(dead), 0, 0, 1)), (Values{0, 1}));
}

TEST(Reference, CrossEntropyIsTheMeanOverRows) {
  Rng rng(8);
  Tensor logits = random_tensor(rng, {2, 3, 5}, DType::f64);
  Tensor targets = from_vector<int64_t>({0, 4, 2, 2, 1, 3}, {2, 3}, DeviceType::cpu);
  Values l = to_vector(logits), t = to_vector(targets);
  double expected = 0;
  for (size_t r = 0; r < 6; ++r) {
    double z = 0;
    for (size_t i = 0; i < 5; ++i) z += std::exp(l[r * 5 + i]);
    expected += (std::log(z) - l[r * 5 + size_t(t[r])]) / 6;
  }
  EXPECT_NEAR(item(cross_entropy(logits, targets)), expected, 1e-13);
  Tensor shifted = cross_entropy(cast(affine(logits, 1, 500), DType::f32), targets);
  EXPECT_NEAR(item(shifted), expected, 1e-4) << "large logits do not overflow";
}

TEST(Reference, SwiGlu) {
  Rng rng(9);
  Tensor x = random_tensor(rng, {3, 8}, DType::f64);
  Values v = to_vector(x), expected;
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < 4; ++i) expected.push_back(v[r * 8 + i] / (1 + std::exp(-v[r * 8 + i])) * v[r * 8 + 4 + i]);
  EXPECT_TRUE(near(to_vector(swiglu(x)), expected, exact, exact));
}

TEST(Reference, EmbeddingAndItsGradientWithRepeats) {
  Tensor table = tensor_of({0, 1, 10, 11, 20, 21}, {3, 2}, DType::f64);
  Tensor ids = from_vector<int64_t>({2, 0, 2}, {3}, DeviceType::cpu);
  require_grad(table);
  Tensor y = embedding(table, ids);
  EXPECT_EQ(to_vector(y), (Values{20, 21, 0, 1, 20, 21}));
  backward(y, tensor_of({1, 2, 3, 4, 5, 6}, {3, 2}, DType::f64));
  EXPECT_EQ(to_vector(grad_of(table)), (Values{3, 4, 0, 0, 6, 8}));
}

TEST(Reference, SplitHeadsRotatesAdjacentPairs) {
  // One position, two query heads, one key/value head, head dimension 2, an angle of 90 degrees.
  Tensor qkv = tensor_of({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 8}, DType::f64);
  Tensor cos = tensor_of({0}, {1, 1}, DType::f64), sin = tensor_of({1}, {1, 1}, DType::f64);
  Heads h = split_heads(qkv, cos, sin, {2, 1, true});
  EXPECT_EQ(h.q.dims(), (Dims{1, 2, 1, 2}));
  EXPECT_EQ(to_vector(h.q), (Values{-2, 1, -4, 3}));
  EXPECT_EQ(to_vector(h.k), (Values{-6, 5}));
  EXPECT_EQ(to_vector(h.v), (Values{7, 8}));
  EXPECT_EQ(to_vector(split_heads(qkv, cos, sin, {2, 1, false}).q), (Values{1, 2, 3, 4}));
}

TEST(Reference, JoinHeadsIsTheInverse) {
  Rng rng(10);
  Tensor x = random_tensor(rng, {2, 3, 4, 5}, DType::f64), y = join_heads(x);
  Values vx = to_vector(x), vy = to_vector(y);
  for (size_t b = 0; b < 2; ++b)
    for (size_t h = 0; h < 3; ++h)
      for (size_t t = 0; t < 4; ++t)
        for (size_t d = 0; d < 5; ++d) ASSERT_EQ(vy[((b * 4 + t) * 3 + h) * 5 + d], vx[((b * 3 + h) * 4 + t) * 5 + d]);
}

}  // namespace
}  // namespace sinter
