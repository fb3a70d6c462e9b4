// The arithmetic of attention against numbers worked out by hand, and its memory against what is really held.
#include "plan/attention_limits.h"

#include "lab/attention/bench_attention.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter::lab {
namespace {

using namespace plan;

AttentionConfig shape(int64_t batch, int64_t heads, int64_t ctx, int64_t d, const char* dtype = "fp32") {
  AttentionConfig c;
  c.batch = batch, c.heads = c.kv_heads = heads, c.ctx = ctx, c.head_dim = d;
  c.precision = precision_named(dtype);
  return c;
}

// The leaderboard's shape: 4 · 16 · 16384² · 64 / 2 = 549.8 GFLOP forward, 3.5 times that in all.
TEST(AttentionLimits, FlopsOfTheLeaderboard) {
  AttentionConfig c = shape(1, 16, 16384, 64, "bf16");
  EXPECT_DOUBLE_EQ(visible_pairs(c), 2147483648.0);
  EXPECT_DOUBLE_EQ(attention_flops(c, Pass::forward), 549755813888.0);
  EXPECT_DOUBLE_EQ(attention_flops(c, Pass::forward_backward), 1924145348608.0);
  c.causal = false;
  EXPECT_DOUBLE_EQ(attention_flops(c, Pass::forward), 1099511627776.0);
  c.kv_heads = 4;
  EXPECT_DOUBLE_EQ(attention_flops(c, Pass::forward), 1099511627776.0) << "shared heads save memory, not products";
}

// An H200: 132 multiprocessors at 1980 MHz give 4.18 · 10¹² exponentials a second, its tensor cores 799 TFLOP/s. The
// leaderboard's forward takes 0.688 ms by the one and 0.514 ms by the other; with half the head dimension it turns
// round.
TEST(AttentionLimits, WhichUnitBindsDependsOnTheHeadDimension) {
  UnitRates h200{799e12, exp_rate(132, 1980)};
  EXPECT_DOUBLE_EQ(h200.exps, 4.18176e12);
  AttentionConfig c = shape(1, 16, 16384, 64, "bf16");
  AttentionLimits wide = limits_of(attention_flops(c, Pass::forward), visible_pairs(c), h200);
  EXPECT_NEAR(wide.product_ms, 0.68806, 1e-4);
  EXPECT_NEAR(wide.exp_ms, 0.51354, 1e-4);
  EXPECT_STREQ(wide.binds(), "products");
  c.head_dim = 32;
  AttentionLimits narrow = limits_of(attention_flops(c, Pass::forward), visible_pairs(c), h200);
  EXPECT_STREQ(narrow.binds(), "exp unit");
  EXPECT_DOUBLE_EQ(narrow.ms(), wide.exp_ms);
  EXPECT_STREQ(limits_of(1e12, 1e12, {}).binds(), "") << "nothing is known of the machine";
}

TEST(AttentionLimits, ExponentOfAPowerLaw) {
  EXPECT_NEAR(fitted_exponent({{256, 3.0 * 256}, {1024, 3.0 * 1024}, {4096, 3.0 * 4096}}).value(), 1, 1e-12);
  EXPECT_NEAR(fitted_exponent({{128, 5e-3}, {256, 2e-2}, {512, 8e-2}}).value(), 2, 1e-12);
  // By hand: x = 1, 2, 4 and y = 1, 2, 8 give slopes over log₂ of (0,0), (1,1), (2,3): 1.5.
  EXPECT_NEAR(fitted_exponent({{1, 1}, {2, 2}, {4, 8}}).value(), 1.5, 1e-12);
  EXPECT_FALSE(fitted_exponent({{1024, 7}}).has_value());
  EXPECT_FALSE(fitted_exponent({{1024, 7}, {1024, 8}}).has_value());
  EXPECT_FALSE(fitted_exponent({}).has_value());
}

using Saved = std::map<std::string, int64_t>;
Saved saved(const AttentionConfig& c) {
  auto all = saved_tensors(c);
  return {all.begin(), all.end()};
}

TEST(AttentionLimits, SavedTensorsByHand) {
  AttentionConfig c = shape(8, 1, 16384, 64);
  Saved naive = saved(c);
  EXPECT_EQ(naive["q"], 8 * 16384 * 64 * 4);
  EXPECT_EQ(naive["probabilities"], int64_t(8) * 16384 * 16384 * 4);
  EXPECT_FALSE(naive.contains("L"));
  c = shape(2, 8, 1024, 80, "bf16");
  c.kv_heads = 2, c.attention.kind = AttentionKind::flash;
  Saved flash = saved(c);
  EXPECT_EQ(flash["o"], 2 * 8 * 1024 * 80 * 2);
  EXPECT_EQ(flash["k"], 2 * 2 * 1024 * 80 * 2);
  EXPECT_EQ(flash["L"], 2 * 8 * 1024 * 4);
  EXPECT_FALSE(flash.contains("probabilities"));
}

int64_t sum_of(const Saved& saved) {
  int64_t sum = 0;
  for (const auto& [name, bytes] : saved) sum += CachingAllocator::rounded(bytes);
  return sum;
}

void expect_memory_as_predicted(DeviceType device, std::vector<AttentionKind> kinds) {
  AttentionBenchOptions options;
  options.warmup = 1;
  Progress quiet(true);
  for (AttentionKind kind : kinds)
    for (const char* dtype : {"fp32", "bf16", "fp16"})
      for (int64_t kv_heads : {4, 2, 1}) {
        AttentionConfig c = shape(2, 4, 128, 16, dtype);
        c.kv_heads = kv_heads, c.device = device, c.attention.kind = kind;
        AttentionNeed need = predict(c);
        AttentionMeasurement m = measure(c, options, 2, quiet).value();
        EXPECT_EQ(m.held_bytes, need.held_bytes) << c.text();
        EXPECT_EQ(m.held_bytes, sum_of(saved(c))) << c.text();
        EXPECT_EQ(m.peak_bytes, need.peak_bytes) << c.text();
        EXPECT_EQ(m.device.timed_phase_ms(0).size(), 2u);
        EXPECT_EQ(m.device.timed_phase_ms(1).size(), 2u);
      }
}
TEST(AttentionMemory, IsAsPredictedAndAsNamed) {
  expect_memory_as_predicted(DeviceType::cpu, {AttentionKind::naive, AttentionKind::tiled, AttentionKind::flash});
}
TEST(AttentionMemoryGpu, IsAsPredictedAndAsNamed) {
  SINTER_REQUIRE_GPU();
  std::vector<AttentionKind> kinds = {AttentionKind::naive};
  if (choose_attention(AttentionKind::automatic, target_of(DeviceType::cuda), 16).kind == AttentionKind::flash)
    kinds = {AttentionKind::naive, AttentionKind::flash, AttentionKind::portable};
  expect_memory_as_predicted(DeviceType::cuda, kinds);
}

TEST(AttentionMemory, GrowsLinearlyWithFlashAndQuadraticallyWithout) {
  Json results = Json::array();
  for (AttentionKind kind : {AttentionKind::naive, AttentionKind::flash})
    for (int64_t ctx : {4096, 16384, 65536}) {
      AttentionConfig c = shape(1, 1, ctx, 16);
      c.attention.kind = kind;
      results.push_back(attention_oom(c, predict(c), "planned", 0));
    }
  Json growth = growth_of(results);
  ASSERT_EQ(growth.size(), 2u);
  EXPECT_NEAR(growth[0]["exponent"].get<double>(), 2, 0.02);
  EXPECT_NEAR(growth[1]["exponent"].get<double>(), 1, 1e-6);
}

TEST(AttentionMemory, WhatDoesNotFitSaysWhyAndWhatWould) {
  AttentionConfig c = shape(8, 1, 16384, 64);
  std::string why = why_it_does_not_fit(c, predict(c), int64_t(1) << 30);
  EXPECT_TRUE(mentions(why, {"needs", "1.00 GiB are free", "probabilities 8.00 GiB", "q 32.0 MiB", "--ctx", "would fit",
                             "--attention flash"}));
  size_t at = why.find("--ctx ") + 6;
  AttentionConfig smaller = c;
  smaller.ctx = std::stoll(why.substr(at));
  EXPECT_LE(predict(smaller).peak_bytes, int64_t(1) << 30);
  smaller.ctx *= 2;
  EXPECT_GT(predict(smaller).peak_bytes, int64_t(1) << 30);
}

}  // namespace
}  // namespace sinter::lab
