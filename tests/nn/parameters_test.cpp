// Flat roles: how parameters lie, how they begin, and how their 16-bit copies stay current.
#include "nn/parameters.h"

#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "optim/optimizer.h"
#include "support/built.h"
#include "support/values.h"

namespace sinter {
namespace {

TEST(Parameters, LayoutFollowsTheRules) {
  Built b = build(little_transformer());
  b.parameters.allocate_grad();
  const Parameters& p = b.parameters;
  // Disjoint, inside the buffer, and views of it.
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const auto& e : p.entries()) {
    taken.push_back({e.offset, e.offset + e.dims.numel()});
    EXPECT_EQ(e.value.data(), static_cast<char*>(p.master().data()) + e.offset * 4) << e.name;
    Tensor grad = p.role("gradient").view(e);
    EXPECT_EQ(grad.data(), static_cast<char*>(p.grad().data()) + e.offset * 4) << e.name;
    EXPECT_TRUE(grad.same_storage(p.grad()));
  }
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_LE(taken[i - 1].second, taken[i].first);
  EXPECT_LE(taken.back().second, p.trainable_size());
  EXPECT_EQ(p.trainable_size() % 128, 0);

  // Leaves begin at multiples of 128; members of a group lie side by side.
  for (const char* name :
       {"embedding.weight", "layers.1.attn.q.weight", "layers.1.attn.o.weight", "layers.2.ffn.w1.weight",
        "layers.2.ffn.w2.weight", "layers.0.norm2.weight", "norm.weight", "head.weight"})
    EXPECT_EQ(p.find(name).offset % 128, 0) << name;
  int64_t d2 = 16 * 16;
  EXPECT_EQ(p.find("layers.1.attn.k.weight").offset, p.find("layers.1.attn.q.weight").offset + d2);
  EXPECT_EQ(p.find("layers.1.attn.v.weight").offset, p.find("layers.1.attn.q.weight").offset + 2 * d2);
  EXPECT_EQ(p.find("layers.1.ffn.w3.weight").offset, p.find("layers.1.ffn.w1.weight").offset + 24 * 16);

  // Units in the order in which gradients arrive: the last first, one after the other without a gap.
  const auto& units = p.units();
  ASSERT_EQ(units.size(), 5u);
  EXPECT_EQ(units.back().name, "head");
  EXPECT_EQ(units.back().begin, 0);
  for (size_t i = 1; i < units.size(); ++i) EXPECT_EQ(units[i].end, units[i - 1].begin) << units[i].name;
  EXPECT_EQ(units.front().end, p.trainable_size());

  // Norms after the matrices of their unit.
  for (const char* m : {"attn.q", "attn.k", "attn.v", "attn.o", "ffn.w1", "ffn.w2", "ffn.w3"})
    for (const char* n : {"norm1", "norm2"})
      EXPECT_LT(p.find(std::string("layers.1.") + m + ".weight").offset,
                p.find(std::string("layers.1.") + n + ".weight").offset);
}

TEST(Parameters, FrozenOnesLieLastWithoutGradient) {
  Built b = build(little_transformer(), {}, {"embedding.weight", "layers.1.norm1.weight"});
  b.parameters.allocate_grad();
  const Parameters& p = b.parameters;
  EXPECT_GE(p.find("embedding.weight").offset, p.trainable_size());
  EXPECT_GE(p.find("layers.1.norm1.weight").offset, p.trainable_size());
  EXPECT_FALSE(p.role("gradient").view(p.find("embedding.weight")).defined());
  EXPECT_EQ(p.grad().numel(), p.trainable_size());
  EXPECT_EQ(p.count(), build(little_transformer()).parameters.count()) << "they still count as parameters";

  Values before = to_vector(p.find("embedding.weight").value);
  AdamW optimizer(b.parameters, {});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  backward(cross_entropy(b.model->logits(ids), ids));
  optimizer.step(0.1);
  EXPECT_EQ(to_vector(p.find("embedding.weight").value), before);
}

TEST(Parameters, WrongUseIsRefused) {
  Parameters p({});
  Tensor a = p.add({"a", {4, 4}, {}});
  p.add_group({{"b", {2, 4}, {}}, {"c", {3, 4}, {}}});
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { p.freeze("nonsense"); }), {"freeze(nonsense)", "no such parameter"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.freeze("b"); }), {"freeze(b)", "b|c"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"a", {1}, {}}); }), {"a", "twice"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"empty", {0, 4}, {}}); }), {"empty", "(0, 4)"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [&] {
                                  p.add_group({{"d", {2, 4}, {}}, {"e", {2, 5}, {}}});
                                }),
                       {"e", "(2, 5)", "(2, 4)"}));
  p.allocate();
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.add({"late", {1}, {}}); }), {"before allocate"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.freeze("a"); }), {"freeze(a)", "before allocate"}));
  EXPECT_THROW(p.allocate(), Error);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { p.find("nonsense"); }), {"nonsense"}));
  Parameters none({});
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { none.allocate(); }), {"no parameters"}));
}

TEST(Parameters, NothingToTrainIsRefused) {
  Parameters p({});
  p.add({"a", {4}, {}});
  p.freeze("a");
  p.allocate();
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { AdamW(p, {}); }), {"frozen"}));
}

TEST(Parameters, InitialValues) {
  ModelConfig c = little_transformer();
  c.d_model = 64, c.d_ff = 160, c.vocab = 1000;
  Built b = build(c);
  for (const auto& e : b.parameters.entries()) {
    Values v = to_vector(e.value);
    if (e.dims.rank() == 1) {
      for (double x : v) ASSERT_EQ(x, 1) << e.name;
      continue;
    }
    double std = e.name == "embedding.weight" ? 1 : std::sqrt(2.0 / double(e.dims[0] + e.dims[1])), s1 = 0, s2 = 0,
           largest = 0;
    for (double x : v) s1 += x, s2 += x * x, largest = std::max(largest, std::fabs(x));
    double n = double(v.size());
    EXPECT_NEAR(s1 / n / std, 0, 5 / std::sqrt(n)) << e.name;
    EXPECT_NEAR(std::sqrt(s2 / n) / std, std::sqrt(0.97334), 4 / std::sqrt(n)) << e.name;
    EXPECT_LE(largest, 3 * std * (1 + 1e-5)) << e.name;
    EXPECT_GT(largest, 2.7 * std) << e.name;
  }
}

TEST(Parameters, InitialValuesFollowSeedAndNameAlone) {
  auto values = [](uint64_t seed, int64_t layers, const char* name) {
    ModelConfig c = little_transformer();
    c.layers = layers;
    return to_vector(build(c, {DeviceType::cpu, DType::f32, {}, seed}).parameters.find(name).value);
  };
  EXPECT_EQ(values(1, 2, "layers.1.attn.q.weight"), values(1, 3, "layers.1.attn.q.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(2, 2, "layers.1.attn.q.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(1, 2, "layers.1.attn.k.weight"));
  EXPECT_NE(values(1, 2, "layers.1.attn.q.weight"), values(1, 2, "layers.0.attn.q.weight"));
}

TEST(Parameters, FloatTypesBeginAlike) {
  auto values = [](DType t) {
    return to_vector(build(little_transformer(), {DeviceType::cpu, t, {}, 3}).parameters.find("head.weight").value);
  };
  EXPECT_EQ(values(DType::f32), values(DType::f64));
}

TEST(Gradients, ArriveInTheFlatBuffer) {
  for (auto compute : {std::optional<DType>{}, std::optional(DType::bf16)}) {
    Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, compute, 0});
    b.parameters.allocate_grad();
    fill(b.parameters.grad(), NAN);  // the first contribution overwrites whatever is there
    Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
    Autocast mixed(compute);
    backward(cross_entropy(b.model->logits(ids), ids));
    for (const auto& e : b.parameters.entries()) {
      double norm = 0;
      for (double g : to_vector(b.parameters.role("gradient").view(e))) {
        ASSERT_TRUE(std::isfinite(g)) << e.name;
        norm += g * g;
      }
      EXPECT_GT(norm, 0) << e.name;
    }
  }
}

TEST(Gradients, TheUnusedAreZeroedBeforeTheStepAndStayUntouched) {
  Parameters p({});
  Tensor used = p.add({"used", {3}, {Init::ones, 0}}), unused = p.add({"unused", {3}, {Init::ones, 0}});
  p.allocate();
  p.allocate_grad();
  for (const auto& e : p.entries()) fill(p.role("gradient").view(e), NAN);
  AdamWOptions options;
  options.max_norm = 1;
  AdamW optimizer(p, options);
  backward(sum(square(used)));
  optimizer.step(0.1);
  EXPECT_EQ(to_vector(unused), (Values{1, 1, 1})) << "not even weight decay";
  EXPECT_NEAR(optimizer.state()[state_grad_norm], std::sqrt(12.0), 1e-6);
  for (double x : to_vector(used)) EXPECT_LT(x, 1);
}

}  // namespace
}  // namespace sinter
