// Optimizers and the numbers they keep on the device, against plain formulas.
#include "optim/optimizer.h"

#include <cmath>

#include "ops/ops.h"
#include "ops/table.h"
#include "support/values.h"

namespace sinter {
namespace {

// One trainable vector whose gradient the test writes itself.
struct OneVector {
  Parameters parameters;
  Tensor x;
  explicit OneVector(const Values& v, DType master = DType::f64, std::optional<DType> compute = {})
      : parameters({DeviceType::cpu, master, compute, 0}) {
    x = parameters.add({"x", {int64_t(v.size())}, {Init::zeros, 0}});
    parameters.allocate();
    parameters.load("master", "x", tensor_of(v, {int64_t(v.size())}, master));
  }
  void set_grad(const Values& g) {
    parameters.load("gradient", "x", tensor_of(g, x.dims(), parameters.options().master));
  }
  Values value() const { return to_vector(parameters.find("x").value); }
};

TEST(AdamW, FollowsTheFormula) {
  Values p{1, -2, 0.5}, m(3, 0.0), v(3, 0.0);
  OneVector one(p);
  AdamWOptions o;
  o.beta1 = 0.8, o.beta2 = 0.95, o.eps = 1e-6, o.weight_decay = 0.1;
  AdamW optimizer(one.parameters, o);
  Rng rng(1);
  for (int t = 1; t <= 7; ++t) {
    Values g = normals(rng, 3);
    double lr = 0.01 * t;
    for (size_t i = 0; i < 3; ++i) {
      p[i] *= 1 - lr * 0.1;
      m[i] = 0.8 * m[i] + 0.2 * g[i];
      v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
      double mh = m[i] / (1 - std::pow(0.8, t)), vh = v[i] / (1 - std::pow(0.95, t));
      p[i] -= lr * mh / (std::sqrt(vh) + 1e-6);
    }
    one.set_grad(g);
    optimizer.step(lr);
    EXPECT_TRUE(near(one.value(), p, 1e-13, 1e-14)) << "step " << t;
  }
}

TEST(Sgd, FollowsTheFormula) {
  for (double momentum : {0.0, 0.9}) {
    Values p{1, -2, 0.5}, b(3, 0.0);
    OneVector one(p);
    SgdOptions o;
    o.momentum = momentum, o.weight_decay = 0.1;
    Sgd optimizer(one.parameters, o);
    Rng rng(2);
    for (int t = 1; t <= 5; ++t) {
      Values g = normals(rng, 3);
      for (size_t i = 0; i < 3; ++i) {
        double with_decay = g[i] + 0.1 * p[i];
        b[i] = t == 1 ? with_decay : momentum * b[i] + with_decay;
        p[i] -= 0.05 * b[i];
      }
      one.set_grad(g);
      optimizer.step(0.05);
      EXPECT_TRUE(near(one.value(), p, 1e-13, 1e-14)) << "momentum " << momentum << ", step " << t;
    }
  }
}

TEST(Clipping, ScalesToTheNormAndOnlyDown) {
  OneVector one({0, 0});
  SgdOptions o;
  o.max_norm = 1;
  Sgd optimizer(one.parameters, o);
  one.set_grad({3, 4});
  optimizer.step(1);
  EXPECT_TRUE(near(one.value(), {-3 / (5 + 1e-6), -4 / (5 + 1e-6)}, 1e-12, 0));
  EXPECT_NEAR(optimizer.state()[state_grad_norm], 5, 1e-12);
  one.set_grad({0.3, 0.4});
  Values before = one.value();
  optimizer.step(1);
  EXPECT_TRUE(near(one.value(), {before[0] - 0.3, before[1] - 0.4}, 1e-12, 0)) << "short ones stay";
}

TEST(Clipping, NormIsGlobalOverAllParameters) {
  Parameters p({DeviceType::cpu, DType::f64, {}, 0});
  Tensor a = p.add({"a", {2}, {Init::ones, 0}}), b = p.add({"b", {3, 3}, {Init::ones, 0}});
  p.allocate();
  SgdOptions o;
  o.max_norm = 100;
  Sgd optimizer(p, o);
  backward(sum(affine(a, 3, 0)) + sum(affine(b, 2, 0)));
  optimizer.step(0);
  EXPECT_NEAR(optimizer.state()[state_grad_norm], std::sqrt(2 * 9.0 + 9 * 4.0), 1e-12);
}

TEST(LossScaling, OverflowSkipsHalvesAndRecovers) {
  OneVector one({1, 2}, DType::f32, DType::f16);
  AdamWOptions o;
  o.loss_scaling = true;
  o.initial_loss_scale = 1024;
  AdamW optimizer(one.parameters, o);
  one.set_grad({1024, INFINITY});
  optimizer.step(0.1);
  EXPECT_EQ(one.value(), (Values{1, 2})) << "nothing changes";
  auto s = optimizer.state();
  EXPECT_EQ(s[state_skip], 1);
  EXPECT_EQ(s[state_skipped], 1);
  EXPECT_EQ(s[state_step], 0) << "a skipped step does not count";
  EXPECT_EQ(s[state_loss_scale], 512);
  EXPECT_EQ(item(optimizer.loss_scale(DType::f32)), 512);

  one.set_grad({NAN, 0});
  optimizer.step(0.1);
  EXPECT_EQ(optimizer.state()[state_loss_scale], 256);

  one.set_grad({256 * 3.0, 256 * -4.0});
  optimizer.step(0.1);
  s = optimizer.state();
  EXPECT_EQ(s[state_skip], 0);
  EXPECT_EQ(s[state_skipped], 2);
  EXPECT_EQ(s[state_step], 1);
  EXPECT_EQ(s[state_loss_scale], 256);
  EXPECT_EQ(s[state_good_steps], 1);
  EXPECT_NEAR(s[state_grad_norm], 5, 1e-5) << "of the unscaled gradients";
  Values first = one.value();  // AdamW's first step is lr · sign
  EXPECT_NEAR(first[0], (1 - 0.1 * 0.01) * 1 - 0.1, 1e-5) << "moments were not poisoned";
  EXPECT_NEAR(first[1], (1 - 0.1 * 0.01) * 2 + 0.1, 1e-5);
  EXPECT_EQ(to_vector(slice(one.parameters.low_copy(), 0, 0, 2)),
            to_vector(cast(tensor_of(first, {2}, DType::f32), DType::f16)));
}

TEST(LossScaling, GrowsAfterEnoughGoodStepsButNotForEver) {
  Tensor state = zeros({step_state_size}, DType::f64, DeviceType::cpu), sum = full({}, 4, DType::f64, DeviceType::cpu);
  fill(slice(state, 0, state_loss_scale, 1), 0x1p22);
  PrepareStepAttrs a{.growth_interval = 3, .dynamic_scale = true};
  std::vector<double> scales;
  for (int i = 0; i < 12; ++i) {
    dispatch(ops::prepare_step, Attrs::of(a), state, sum);
    scales.push_back(to_vector(state)[state_loss_scale]);
  }
  EXPECT_EQ(scales, (std::vector<double>{0x1p22, 0x1p22, 0x1p23, 0x1p23, 0x1p23, 0x1p24, 0x1p24, 0x1p24, 0x1p24, 0x1p24,
                                         0x1p24, 0x1p24}));
}

TEST(LossScaling, OffMeansNoScale) {
  OneVector one({1});
  AdamW optimizer(one.parameters, {});
  EXPECT_FALSE(optimizer.loss_scale(DType::f32).defined());
  EXPECT_EQ(optimizer.state()[state_loss_scale], 1);
}

TEST(LearningRate, IsThatOfTheOptionsUntilItIsSet) {
  OneVector one({1, 1});
  SgdOptions o;
  o.learning_rate = 0.25;
  Sgd optimizer(one.parameters, o);
  EXPECT_EQ(optimizer.state()[state_lr], 0.25);
  one.set_grad({1, 2});
  optimizer.step();
  EXPECT_EQ(one.value(), (Values{0.75, 0.5}));
  one.set_grad({1, 2});
  optimizer.step(0.125);
  EXPECT_EQ(one.value(), (Values{0.625, 0.25}));
  EXPECT_EQ(AdamW(one.parameters, {}).state()[state_lr], 1e-3);
}

std::vector<std::string> names_of_roles(const Parameters& p) {
  std::vector<std::string> names;
  for (const auto& r : p.roles()) names.push_back(r.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(Moments, AreRolesWhileTheOptimizerLives) {
  OneVector one({1, 2});
  Parameters& p = one.parameters;
  {
    AdamW optimizer(p, {});
    EXPECT_EQ(optimizer.moments(), (Names{"adamw.m", "adamw.v"}));
    EXPECT_EQ(names_of_roles(p), (Names{"master", "gradient"})) << "no memory before it is needed";
    one.set_grad({3, 4});
    optimizer.step(0.1);
    EXPECT_EQ(names_of_roles(p), (Names{"master", "gradient", "adamw.m", "adamw.v"}));
    EXPECT_TRUE(near(to_vector(p.role("adamw.m").view(p.find("x"))), {0.3, 0.4}, 1e-14, 0));
    EXPECT_TRUE(near(to_vector(p.role("adamw.v").view(p.find("x"))), {0.009, 0.016}, 1e-14, 0));
    EXPECT_EQ(p.role("adamw.m").category, MemoryCategory::optimizer);
  }
  EXPECT_EQ(names_of_roles(p), (Names{"master", "gradient"}));
  SgdOptions o;
  EXPECT_EQ(Sgd(p, o).moments(), Names{});
  o.momentum = 0.9;
  Sgd optimizer(p, o);
  optimizer.allocate();
  optimizer.allocate();
  EXPECT_EQ(names_of_roles(p), (Names{"master", "gradient", "sgd.momentum"}));
}

TEST(Moments, OfTwoOptimizersAreRefused) {
  OneVector one({1, 2});
  AdamW first(one.parameters, {});
  first.allocate();
  {
    AdamW second(one.parameters, {});
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { second.step(0.1); }), {"adamw.m", "two optimizers"}));
  }
  EXPECT_EQ(names_of_roles(one.parameters).size(), 4u) << "the first one's stay";
  first.step(0.1);
}

TEST(State, IsLoadedInPlaceWithTheMoments) {
  auto options = [] {
    AdamWOptions o;
    o.loss_scaling = true;
    o.initial_loss_scale = 8;
    return o;
  };
  OneVector one({1, -2, 0.5}, DType::f32, DType::f16), other({9, 9, 9}, DType::f32, DType::f16);
  AdamW optimizer(one.parameters, options()), resumed(other.parameters, options());
  Rng rng(5);
  auto step = [&](OneVector& v, AdamW& o, const Values& g) {
    v.set_grad(g);
    o.step(0.01);
  };
  for (int i = 0; i < 3; ++i) step(one, optimizer, normals(rng, 3));
  step(one, optimizer, {INFINITY, 0, 0});  // halves the scale
  resumed.allocate();
  for (const char* role : {"master", "adamw.m", "adamw.v"})
    other.parameters.load(role, "x", one.parameters.role(role).view(one.parameters.find("x")));
  resumed.load_state(optimizer.state());
  EXPECT_EQ(resumed.state(), optimizer.state());
  for (int i = 0; i < 3; ++i) {
    Values g = normals(rng, 3);
    step(one, optimizer, g);
    step(other, resumed, g);
    EXPECT_EQ(other.value(), one.value());
    EXPECT_EQ(resumed.state(), optimizer.state());
    EXPECT_TRUE(same_bits(other.parameters.low_copy(), one.parameters.low_copy()));
  }
}

TEST(State, LoadedSetsTheLearningRate) {
  OneVector one({0});
  Sgd optimizer(one.parameters, {});
  optimizer.set_learning_rate(0.5);
  std::vector<double> state = optimizer.state();
  state[state_lr] = 0.25;
  optimizer.load_state(state);
  optimizer.set_learning_rate(0.5);
  EXPECT_EQ(optimizer.state()[state_lr], 0.5) << "not taken for the one that was set before";
}

TEST(State, ThatDoesNotFitIsRefused) {
  OneVector one({1});
  SgdOptions o;
  Sgd plain(one.parameters, o);
  o.loss_scaling = true;
  Sgd scaling(one.parameters, o);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { plain.load_state({1, 2}); }), {"8", "2"}));
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { plain.load_state(scaling.state()); }), {"65536", "set it to 1"}));
  std::vector<double> bad = scaling.state();
  bad[state_loss_scale] = 0;
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { scaling.load_state(bad); }), {"0", "positive"}));
  EXPECT_EQ(scaling.state()[state_loss_scale], 65536);
}

TEST(MakeOptimizer, SetsLossScalingAndKeepsTheRest) {
  OneVector one({1});
  AdamWOptions adamw;
  adamw.learning_rate = 0.5;
  SgdOptions sgd;
  sgd.momentum = 0.9, sgd.learning_rate = 0.5;
  for (const MakeOptimizer& make : {make_adamw(adamw), make_sgd(sgd)})
    for (bool scaling : {false, true}) {
      std::unique_ptr<Optimizer> optimizer = make(one.parameters, scaling);
      EXPECT_EQ(optimizer->loss_scale(DType::f32).defined(), scaling);
      EXPECT_EQ(optimizer->state()[state_lr], 0.5);
      EXPECT_FALSE(optimizer->moments().empty());
    }
}

TEST(Moments, OnMetaTakeTheirMemory) {
  Parameters p({DeviceType::meta, DType::f32, {}, 0});
  p.add({"x", {5, 7}, {}});
  p.allocate();
  AdamW optimizer(p, {});
  auto bytes = [] { return allocator_of(DeviceType::meta).stats().allocated_by[size_t(MemoryCategory::optimizer)]; };
  int64_t before = bytes();
  optimizer.allocate();
  EXPECT_EQ(bytes() - before, CachingAllocator::rounded(p.role("adamw.m").bytes()) * 2);
  optimizer.step();
  optimizer.load_state(std::vector<double>(step_state_size, 1.0));
}

TEST(SumSquares, IsAccumulatedInFloat64) {
  Tensor x = full({1000000}, 0.1, DType::f32, DeviceType::cpu);
  double expected = 1e6 * double(0.1f) * double(0.1f);
  EXPECT_NEAR(item(sum(dispatch(ops::sum_squares, {}, x)[0])), expected, 1e-7 * expected);
  Tensor huge = full({4}, 1e30, DType::f32, DeviceType::cpu);  // its square leaves fp32
  EXPECT_NEAR(item(sum(dispatch(ops::sum_squares, {}, huge)[0])) / 4e60, 1, 1e-6);
}

// Of a part that begins at a block the sums are those of the whole: a norm does not depend on the number of ranks.
TEST(SumSquares, OfABlockDependsOnItsElementsAlone) {
  Tensor x = empty({5 * squares_block + 77}, DType::f32, DeviceType::cpu);
  fill_normal(x, 3, 4, 1);
  std::vector<double> all = to_vector(dispatch(ops::sum_squares, {}, x)[0]);
  ASSERT_EQ(all.size(), 6u);
  Tensor part = slice(x, 0, 2 * squares_block, 3 * squares_block + 77);
  EXPECT_EQ(to_vector(dispatch(ops::sum_squares, {}, part)[0]), std::vector<double>(all.begin() + 2, all.end()));
}

TEST(Schedule, WarmsUpThenFollowsTheCosine) {
  auto at = [](int64_t step) { return cosine_schedule(step, 1.0, 0.1, 10, 110); };
  EXPECT_DOUBLE_EQ(at(0), 0.1);
  EXPECT_DOUBLE_EQ(at(4), 0.5);
  EXPECT_DOUBLE_EQ(at(9), 1.0);
  EXPECT_DOUBLE_EQ(at(10), 1.0);
  for (int64_t s : {20, 37, 60, 99}) {
    double expected = 0.1 + 0.45 * (1 + std::cos(std::acos(-1.0) * double(s - 10) / 100));
    EXPECT_NEAR(at(s), expected, 1e-15) << s;
  }
  EXPECT_NEAR(at(60), 0.55, 1e-15);
  EXPECT_DOUBLE_EQ(at(110), 0.1);
  EXPECT_DOUBLE_EQ(at(100000), 0.1);
  EXPECT_DOUBLE_EQ(cosine_schedule(0, 1, 0, 0, 10), 1) << "no warm-up";
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { cosine_schedule(0, 1, 0, 20, 10); }), {"20", "10"}));
}

}  // namespace
}  // namespace sinter
