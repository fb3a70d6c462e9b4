// Predictions for GPUs that are not here: nothing in them that such a GPU could not run, and
// the FLOPs of the published table.
#include "plan/prediction.h"

#include "nn/transformer.h"
#include "ops/table.h"
#include "plan/fit.h"
#include "plan/gpus.h"
#include "support/values.h"

namespace sinter::plan {
namespace {

RunConfig compiled_step(const char* dtype, AttentionKind attention, int64_t ctx) {
  RunConfig c;
  c.model = known_size("small");
  c.model.layers = 2, c.model.ctx = ctx, c.model.attention.kind = attention;
  c.device = DeviceType::cuda, c.precision = precision_named(dtype), c.mode = Mode::compiled;
  return c;
}

// What a step on such a GPU consists of.
compile::Graph graph_on(const DeviceInfo& gpu, const RunConfig& c) {
  MetaTarget target(gpu);
  Workload work(c, DeviceType::meta, make_transformer);
  work.run();
  return work.compilation()->executable->graph();
}

int count(const compile::Graph& g, std::initializer_list<const OpDef*> ops, bool low_precision_only = false) {
  int n = 0;
  for (const compile::Node& node : g.nodes)
    for (const OpDef* op : ops) n += node.op == op && (!low_precision_only || is_16bit(node.call.in[0].dtype));
  return n;
}

TEST(Prediction, HoldsNothingThatTheCardCannotRun) {
  for (const Gpu* card : known_cards()) {
    DeviceInfo gpu = card->info();
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      if (gpu.compute_capability < 80 && dtype == std::string("bf16")) continue;
      for (AttentionKind wanted : {AttentionKind::automatic, AttentionKind::naive})
        for (int64_t ctx : {64, 1024}) {
          SCOPED_TRACE(fmt::format("{} {} {} ctx {}", gpu.name, dtype, name_of(wanted), ctx));
          compile::Graph g = graph_on(gpu, compiled_step(dtype, wanted, ctx));
          EXPECT_EQ(g.target.name, gpu.name);
          bool hopper = gpu.compute_capability == 90, flash = gpu.compute_capability >= 80;
          int folded = count(g, {&ops::adamw_product});
          EXPECT_EQ(folded > 0, hopper && dtype == std::string("bf16")) << "updates are folded by a kernel for Hopper";
          int attention = count(g, {&ops::attention, &ops::attention_backward});
          EXPECT_EQ(attention > 0, flash && wanted == AttentionKind::automatic);
          auto joined = {&ops::attention_weights, &ops::attention_weights_backward};
          if (!flash) {
            EXPECT_EQ(count(g, joined), 0);
          }
          if (!hopper) {
            EXPECT_EQ(count(g, joined, true), 0) << "scores that are never stored, in 16 bits, are Hopper's";
          }
        }
    }
  }
}

TEST(Prediction, ABudgetThatCannotBeKeptFitsNowhere) {
  RunConfig c = compiled_step("bf16", AttentionKind::automatic, 256);
  DeviceInfo card = card_named("H200-141").info();
  EXPECT_TRUE(fits(c, card, make_transformer));
  c.memory_budget = 1e-6;
  Prediction p = predict(c, card, make_transformer);
  EXPECT_TRUE(mentions(p.refused, {"--memory-budget"}));
  EXPECT_GT(p.bytes(), 0) << "what it needs without one";
  EXPECT_FALSE(fit_of(p, INT64_MAX).fits);
  EXPECT_FALSE(fits(c, card, make_transformer));
}

TEST(Prediction, DependsOnTheCard) {
  RunConfig c = compiled_step("bf16", AttentionKind::automatic, 256);
  auto bytes = [&](const char* card) { return predict(c, card_named(card).info(), make_transformer).bytes(); };
  EXPECT_GT(bytes("A100-80"), bytes("H100-80")) << "gradients that are not folded take memory";
}

// Compiling changes what runs, not what a model's FLOPs are.
TEST(Prediction, CountsTheSameModelFlopsCompiledAsEager) {
  for (const char* size : {"small", "2.7B"})
    for (Pass pass : {Pass::forward, Pass::forward_backward, Pass::step})
      for (AttentionKind attention : {AttentionKind::flash, AttentionKind::naive}) {
        RunConfig c;
        c.model = known_size(size);
        c.model.layers = 3, c.model.ctx = 1024, c.model.attention.kind = attention;
        c.device = DeviceType::cuda, c.precision = precision_named("bf16"), c.pass = pass;
        DeviceInfo gpu = card_named("H200-141").info();
        Prediction eager = predict(c, gpu, make_transformer);
        c.mode = Mode::compiled;
        Prediction compiled = predict(c, gpu, make_transformer);
        EXPECT_NEAR(compiled.forward_flops / eager.forward_flops, 1, 1e-12) << c.text();
        EXPECT_NEAR(compiled.flops / eager.flops, 1, 1e-12) << c.text();
        EXPECT_LE(compiled.flops_executed, eager.flops_executed * (1 + 1e-12)) << c.text();
      }
}

}  // namespace
}  // namespace sinter::plan
