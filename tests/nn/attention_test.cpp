// Attention as the model calls it: which implementation is chosen, and that they agree, with fewer key/value heads too.
#include "nn/attention.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/transformer.h"
#include "support/gpu.h"
#include "support/targets.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr AttentionKind on_the_cpu[] = {AttentionKind::naive, AttentionKind::tiled, AttentionKind::flash};

TEST(ChooseAttention, AutoTakesFlashWhereThereIsAKernelAndSaysWhy) {
  AttentionChoice cpu = choose_attention(AttentionKind::automatic, target_of(DeviceType::cpu), 300);
  EXPECT_EQ(cpu.kind, AttentionKind::flash);
  EXPECT_TRUE(mentions(cpu.why, {"auto", "cpu", "300"}));
  AttentionChoice wide = choose_attention(AttentionKind::automatic, hopper_gpu(), 160);
  EXPECT_EQ(wide.kind, AttentionKind::naive);
  EXPECT_TRUE(mentions(wide.why, {"auto", "128", "160"}));
  EXPECT_EQ(choose_attention(AttentionKind::naive, hopper_gpu(), 160).kind, AttentionKind::naive);
  AttentionChoice old = choose_attention(AttentionKind::automatic, plan::card_named("T4-16").info(), 64);
  EXPECT_EQ(old.kind, AttentionKind::naive);
  EXPECT_TRUE(mentions(old.why, {"auto", "8.0", "T4-16", "7.5"}));
}

TEST(ChooseAttention, WhatCannotRunIsRefusedWithTheRemedy) {
  auto refusal = [](AttentionKind kind, DeviceType device, int64_t d) {
    DeviceInfo on = device == DeviceType::cuda ? hopper_gpu() : target_of(device);
    return error_of(ErrorKind::usage, [&] { choose_attention(kind, on, d); });
  };
  EXPECT_TRUE(mentions(refusal(AttentionKind::flash, DeviceType::cuda, 256), {"flash", "128", "256", "naive"}));
  EXPECT_TRUE(mentions(refusal(AttentionKind::tiled, DeviceType::cuda, 64), {"tiled", "CPU", "--device cpu"}));
  EXPECT_TRUE(mentions(refusal(AttentionKind::portable, DeviceType::cpu, 64), {"portable", "CUDA", "--device cuda"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { attention_named("sparse"); }),
                       {"--attention sparse", "auto", "naive", "flash", "tiled", "portable"}));
  for (const char* name : {"auto", "naive", "tiled", "flash", "portable"})
    EXPECT_STREQ(name_of(attention_named(name)), name);
}

ModelConfig little(AttentionKind kind, int64_t kv_heads) {
  ModelConfig c;
  c.d_model = 48, c.d_ff = 40, c.layers = 2, c.heads = 6, c.kv_heads = kv_heads, c.vocab = 37, c.ctx = 21;
  c.attention.kind = kind;
  return c;
}

// The loss and the gradient of every parameter.
Values results_of(const ModelConfig& c, DType type, DeviceType device = DeviceType::cpu) {
  Parameters p({device, type, {}, 7});
  std::unique_ptr<Model> model = make_transformer(c, p);
  p.allocate();
  Tensor tokens = zeros({2, c.ctx}, DType::i64, device), targets = zeros({2, c.ctx}, DType::i64, device);
  fill_integers(tokens, 1, 1, 0, c.vocab);
  fill_integers(targets, 1, 2, 0, c.vocab);
  Tensor loss = cross_entropy(model->logits(tokens), targets);
  backward(loss);
  Values all{item(loss)};
  for (const auto& e : p.entries()) {
    Values g = to_vector(p.role("gradient").view(e));
    all.insert(all.end(), g.begin(), g.end());
  }
  return all;
}

TEST(ModelAttention, EveryImplementationGivesTheSameLossAndGradients) {
  for (int64_t kv_heads : {0, 6, 3, 2, 1}) {
    Values expected = results_of(little(AttentionKind::naive, kv_heads), DType::f64);
    for (AttentionKind kind : on_the_cpu) {
      ModelConfig c = little(kind, kv_heads);
      EXPECT_LE(normwise_error(results_of(c, DType::f64), expected), 1e-12) << name_of(kind) << " kv " << kv_heads;
      EXPECT_LE(normwise_error(results_of(c, DType::f32), expected), 1e-5) << name_of(kind) << " kv " << kv_heads;
    }
  }
}

TEST(ModelAttentionGpu, EveryImplementationGivesTheSameLossAndGradients) {
  SINTER_REQUIRE_GPU();
  std::vector<AttentionKind> kinds = {AttentionKind::naive};
  if (choose_attention(AttentionKind::automatic, target_of(DeviceType::cuda), 8).kind == AttentionKind::flash)
    kinds = {AttentionKind::naive, AttentionKind::flash, AttentionKind::portable};
  for (int64_t kv_heads : {6, 2, 1}) {
    Values expected = results_of(little(AttentionKind::naive, kv_heads), DType::f64);
    for (AttentionKind kind : kinds)
      EXPECT_LE(normwise_error(results_of(little(kind, kv_heads), DType::f32, DeviceType::cuda), expected), 1e-5)
          << name_of(kind) << " kv " << kv_heads;
  }
}

TEST(ModelAttention, FewerKeyValueHeadsShrinkTheirParameters) {
  auto built = [](int64_t kv_heads) {
    auto p = std::make_unique<Parameters>(Parameters::Options{DeviceType::meta, DType::f32, {}, 0});
    auto model = make_transformer(little(AttentionKind::flash, kv_heads), *p);
    p->allocate();
    return p;
  };
  auto all = built(0), two = built(2);
  EXPECT_EQ(all->find("layers.0.attn.k.weight").dims, (Dims{48, 48}));
  EXPECT_EQ(two->find("layers.0.attn.k.weight").dims, (Dims{16, 48}));
  EXPECT_EQ(two->find("layers.1.attn.v.weight").dims, (Dims{16, 48}));
  EXPECT_EQ(two->find("layers.1.attn.q.weight").dims, (Dims{48, 48}));
  EXPECT_EQ(all->count() - two->count(), 2 * 2 * 32 * 48) << "two layers, k and v, four heads of 8 less";
}

// Shared heads against the same heads written out, in float64.
TEST(NaiveAttention, SharedHeadsEqualRepeatedOnes) {
  Rng rng(3);
  for (std::array<int64_t, 5> shape :
       std::vector<std::array<int64_t, 5>>{{2, 6, 2, 13, 8}, {1, 4, 1, 70, 6}, {3, 5, 5, 9, 4}})
    for (bool causal : {true, false}) {
      int64_t B = shape[0], H = shape[1], shared = shape[2], N = shape[3], D = shape[4], group = H / shared;
      Tensor q = random_tensor(rng, {B, H, N, D}, DType::f64), g = random_tensor(rng, {B, H, N, D}, DType::f64);
      Tensor k = random_tensor(rng, {B, shared, N, D}, DType::f64),
             v = random_tensor(rng, {B, shared, N, D}, DType::f64);
      auto gradients = [&](auto&& compute) {
        Tensor leaves[] = {copy(q), copy(k), copy(v)};
        for (Tensor& t : leaves) require_grad(t);
        Tensor o = compute(leaves[0], leaves[1], leaves[2]);
        backward(o, g);
        return std::vector<Values>{to_vector(o), to_vector(grad_of(leaves[0])), to_vector(grad_of(leaves[1])),
                                   to_vector(grad_of(leaves[2]))};
      };
      auto repeated = [&](const Tensor& x) {
        return reshape(expand(reshape(x, {B, shared, 1, N, D}), {B, shared, group, N, D}), {B, H, N, D});
      };
      auto got = gradients([&](auto& a, auto& b, auto& c) { return naive_attention(a, b, c, causal); });
      auto expected =
          gradients([&](auto& a, auto& b, auto& c) { return naive_attention(a, repeated(b), repeated(c), causal); });
      for (size_t i = 0; i < 4; ++i) EXPECT_LE(normwise_error(got[i], expected[i]), 1e-13) << i << " H " << H;
    }
  Tensor q = random_tensor(rng, {1, 6, 4, 4}, DType::f64), k = random_tensor(rng, {1, 4, 4, 4}, DType::f64);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { naive_attention(q, k, k, true); }), {"6", "4", "evenly"}));
}

}  // namespace
}  // namespace sinter
