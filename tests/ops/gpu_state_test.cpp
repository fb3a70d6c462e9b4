// Random numbers, the optimizers' arithmetic and memory on the GPU.
#include <cmath>

#include "ops/table.h"
#include "optim/optimizer.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr DeviceType cuda = DeviceType::cuda;

class RandomGpu : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  void SetUp() override { SINTER_REQUIRE_GPU(); }
  template <class F> void expect_same(DType type, int64_t n, const F& fill_it) {
    Tensor a = empty({n}, type, DeviceType::cpu), b = empty({n}, type, cuda);
    fill_it(a), fill_it(b);
    EXPECT_TRUE(same_bits(a, b)) << name_of(type) << " " << n;
  }
};

TEST_P(RandomGpu, SameBitsAsTheCpu) {
  auto [type, n] = GetParam();
  for (uint64_t seed : {uint64_t(0), uint64_t(42), uint64_t(0x123456789abcdef0)}) {
    expect_same(type, n, [&](const Tensor& t) { fill_normal(t, seed, 7 + seed, 0.02); });
    expect_same(type, n, [&](const Tensor& t) { fill_normal(t, seed, 7, 1, 1.5); });
    expect_same(type, n, [&](const Tensor& t) { fill_uniform(t, seed, 7, -3, 5); });
    for (DType ids : {DType::i64, DType::i32})
      expect_same(ids, n, [&](const Tensor& t) { fill_integers(t, seed, 7, -5, 50257); });
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndSizes, RandomGpu,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values<int64_t>(1, 3, 1023, 4096, 1000003)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(FillGpu, AnyTypeAnyStrides) {
  SINTER_REQUIRE_GPU();
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    Tensor x = zeros({3, 5}, t, cuda);
    fill(slice(x, 1, 1, 2), 1);
    EXPECT_EQ(to_vector(x), (Values{0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0})) << name_of(t);
  }
}

TEST(CastGpu, RoundsAsTheCpuDoes) {
  SINTER_REQUIRE_GPU();
  Values v{0,    -0.0, 1,       1 + 0x1p-8, 1 + 0x1p-11, 65504,    65519,    65520,
           1e-8, 6e-8, 0x1p-25, 1e38,       -1e38,       INFINITY, -INFINITY};
  Rng rng(1);
  for (int i = 0; i < 10000; ++i) v.push_back(std::ldexp(uniform(rng, -1, 1), int(integer(rng, -30, 30))));
  Tensor x = tensor_of(v, {int64_t(v.size())}, DType::f32);
  for (DType t : {DType::bf16, DType::f16}) {
    EXPECT_TRUE(same_bits(cast(to(x, cuda), t), cast(x, t))) << name_of(t);
    EXPECT_TRUE(same_bits(cast(cast(to(x, cuda), t), DType::f32), cast(cast(x, t), DType::f32))) << name_of(t);
  }
  EXPECT_TRUE(std::isnan(item(cast(full({1}, NAN, DType::f32, cuda), DType::bf16))));
}

// The same steps on both devices: parameters, moments and numbers of the step.
template <class Optimizer_, class Options>
void expect_same_training(Options options, std::optional<DType> compute, bool overflow) {
  std::vector<Values> result, low, state;
  for (DeviceType device : {DeviceType::cpu, cuda}) {
    Parameters p({device, DType::f32, compute, 3});
    Tensor a = p.add({"a", {1001, 33}, {Init::truncated_normal, 1}}), b = p.add({"b", {77}, {Init::ones, 0}});
    p.allocate();
    p.allocate_grad();
    Optimizer_ optimizer(p, options);
    for (int step = 0; step < 4; ++step) {
      for (const auto& e : p.entries()) fill_normal(p.role("gradient").view(e), 9, uint64_t(step), 0.3);
      if (overflow && step == 1) fill(slice(p.role("gradient").view(p.find("b")), 0, 5, 1), INFINITY);
      leaf_of(a)->has_grad = leaf_of(b)->has_grad = true;
      optimizer.step(0.01 * (step + 1));
    }
    result.push_back(to_vector(p.master().detach()));
    state.push_back(optimizer.state());
    if (compute) low.push_back(to_vector(p.low_copy())), low.push_back(to_vector(cast(p.master().detach(), *compute)));
  }
  EXPECT_TRUE(near(result[1], result[0], 2e-6, 1e-7));
  EXPECT_TRUE(near(state[1], state[0], 1e-6, 0));
  if (!compute) return;
  EXPECT_EQ(low[0], low[1]) << "the copy is the rounded master, on the CPU";
  EXPECT_EQ(low[2], low[3]) << "the copy is the rounded master, on the GPU";
}

TEST(OptimizerGpu, AdamW) {
  SINTER_REQUIRE_GPU();
  AdamWOptions o;
  expect_same_training<AdamW>(o, {}, false);
  o.max_norm = 1;
  expect_same_training<AdamW>(o, DType::bf16, false);
}

TEST(OptimizerGpu, AdamWWithLossScalingAndAnOverflow) {
  SINTER_REQUIRE_GPU();
  AdamWOptions o;
  o.loss_scaling = true;
  o.initial_loss_scale = 128;
  expect_same_training<AdamW>(o, DType::f16, true);
}

TEST(OptimizerGpu, Sgd) {
  SINTER_REQUIRE_GPU();
  SgdOptions o;
  o.weight_decay = 0.1;
  expect_same_training<Sgd>(o, {}, false);
  o.momentum = 0.9;
  o.max_norm = 1;
  expect_same_training<Sgd>(o, DType::f16, false);
}

TEST(OptimizerGpu, SumSquares) {
  SINTER_REQUIRE_GPU();
  for (int64_t n : {1, 5, 1000, 2049, 5000011}) {
    Tensor x = empty({n}, DType::f32, cuda);
    fill_normal(x, 1, 2, 1);
    double exact = 0;
    for (double v : to_vector(x)) exact += v * v;
    Tensor sums = dispatch(ops::sum_squares, {}, x)[0];
    EXPECT_NEAR(item(sum(sums)), exact, 1e-6 * exact) << n;
    EXPECT_TRUE(same_bits(sums, dispatch(ops::sum_squares, {}, x)[0])) << n;
  }
  EXPECT_TRUE(std::isinf(item(sum(dispatch(ops::sum_squares, {}, full({3}, INFINITY, DType::f32, cuda))[0]))));
}

TEST(NormGpu, StatisticsIn16BitsOverflow) {
  SINTER_REQUIRE_GPU();
  Tensor x = full({2, 64}, 300, DType::f16, cuda), w = full({64}, 1, DType::f16, cuda);
  auto norm_with = [&](bool low) {
    return to_vector(dispatch(ops::rms_norm, Attrs::of(NormAttrs{1e-5, low}), x, w)[0]);
  };
  EXPECT_EQ(norm_with(false), Values(128, 1.0));
  EXPECT_EQ(norm_with(true), Values(128, 0.0));
}

TEST(MemoryGpu, TooMuchIsRefusedAndTheRestGoesOn) {
  SINTER_REQUIRE_GPU();
  std::string message = error_of(ErrorKind::memory, [] { empty({int64_t(1) << 42}, DType::f32, cuda); });
  EXPECT_TRUE(mentions(message, {"out of memory", "cuda", "MiB"}));
  EXPECT_EQ(item(sum(full({1000}, 1, DType::f32, cuda))), 1000);
}

TEST(MemoryGpu, CopiesBetweenDevicesKeepEverything) {
  SINTER_REQUIRE_GPU();
  Rng rng(1);
  for (DType t : {DType::f32, DType::bf16, DType::i64}) {
    Tensor x = random_tensor(rng, {3, 1000, 7}, t);
    EXPECT_TRUE(same_bits(to(to(x, cuda), DeviceType::cpu), x));
    EXPECT_TRUE(same_bits(to(transpose(to(x, cuda), 0, 2), DeviceType::cpu), copy(transpose(x, 0, 2))));
  }
}

TEST(EventGpu, MeasuresWorkOnTheDevice) {
  SINTER_REQUIRE_GPU();
  Tensor a = full({2048, 2048}, 1, DType::f32, cuda);
  matmul(a, a);
  Event begin(cuda), end(cuda);
  begin.record();
  for (int i = 0; i < 20; ++i) matmul(a, a);
  end.record();
  end.wait();
  EXPECT_GT(end.ms_since(begin), 0);
}

TEST(Tf32Gpu, IsNearButNotFp32) {
  SINTER_REQUIRE_GPU();
  Rng rng(1);
  Tensor a = random_tensor(rng, {256, 256}, DType::f32), b = random_tensor(rng, {256, 256}, DType::f32);
  Values exact = to_vector(matmul(cast(a, DType::f64), cast(b, DType::f64))), full_precision, tf32;
  full_precision = to_vector(matmul(to(a, cuda), to(b, cuda)));
  {
    Scoped math(context().math, MathMode::tf32);
    tf32 = to_vector(matmul(to(a, cuda), to(b, cuda)));
  }
  EXPECT_LE(normwise_error(full_precision, exact), 2e-6);
  EXPECT_LE(normwise_error(tf32, exact), 2e-3);
  EXPECT_GT(normwise_error(tf32, exact), 2e-5) << "tf32 was not used";
}

}  // namespace
}  // namespace sinter
