// Large products of a step on the CPU are packed, small ones are not, and the step computes what it computed before. (That it takes the
// predicted memory, CompiledStep.TakesThePredictedMemory asks: the products of its fp32 step are packed.)
#include "compile/compiled.h"
#include "nn/transformer.h"
#include "ops/table.h"
#include "support/generated.h"
#include "support/model_step.h"
#include "train/workload.h"

namespace sinter {
namespace {

// Three sequences of `ctx` tokens: with 48 all products of layers are large, with 12 none is.
ModelConfig config(int64_t ctx) {
  return {.d_model = 192, .d_ff = 224, .layers = 1, .heads = 4, .vocab = 300, .ctx = ctx};
}

int packed_in(const compile::Graph& g) {
  int n = 0;
  for (const compile::Node& c : g.nodes) {
    if (c.op->kernel == &KernelTable::matmul) n += c.call.attrs.as<MatmulAttrs>().packed;
    if (c.op == &ops::adamw_product) n += c.call.attrs.as<AdamWProductAttrs>().packed;
  }
  return n;
}

TEST(PackProducts, TakesLargeOnesOfTheCpu) {
  auto packed = [](const char* dtype, int64_t ctx, const char* passes) {
    ModelStep step(config(ctx), dtype, make_transformer, DeviceType::cpu, compile::passes_named(passes));
    step.run();
    return packed_in(step.trainer->replayed()[0].compiled->compilation().executable->graph());
  };
  EXPECT_EQ(packed("fp32", 48, "pack"), 15) << "five weights: forward, and two gradients";
  EXPECT_EQ(packed("fp32", 24, "pack"), 6) << "of q, k and v, and of the gates: the others have fewer than 2^22 terms";
  EXPECT_EQ(packed("fp32", 12, "pack"), 0);
  EXPECT_EQ(packed("bf16", 48, "pack"), 0) << "it multiplies fp32 only";
  EXPECT_EQ(packed("fp32", 48, "dce"), 0);
  ModelStep step(config(48), "fp32", make_transformer);
  EXPECT_EQ(packed_in(compiled_for_cuda(step.graph())->graph()), 0);
}

TEST(PackProducts, ChangesNothingButRounding) {
  ModelStep eager(config(48), "fp32", make_transformer),
      step(config(48), "fp32", make_transformer, DeviceType::cpu, compile::passes_named("pack+plan"));
  double loss = eager.run();
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(step.run(), loss, 1e-5 * loss);
  EXPECT_LT(normwise_error(step.gradient(), eager.gradient()), 1e-5);
}

TEST(PackProducts, TakesFoldedUpdates) {
  RunConfig c;
  c.model = config(48), c.batch = 3, c.device = DeviceType::cpu, c.precision = precision_named("fp32");
  c.pass = Pass::step, c.mode = Mode::compiled, c.passes = "fold+pack";
  Workload work(c, DeviceType::cpu, make_transformer);
  work.run();
  int folded = 0;
  for (const compile::Node& n : work.compilation()->executable->graph().nodes)
    folded += n.op == &ops::adamw_product && n.call.attrs.as<AdamWProductAttrs>().packed;
  EXPECT_EQ(folded, 5);
}

// Whole steps, whose weight gradients go straight into AdamW.
TEST(PackProducts, TrainsAsEagerDoes) {
  auto losses = [](std::optional<compile::CompileOptions> how) {
    TrainerOptions o;
    o.precision = precision_named("fp32");
    o.seed = 1;
    o.compiled = std::move(how);
    Trainer t(config(48), o, make_transformer);
    std::vector<double> all;
    for (uint64_t i = 0; i < 10; ++i) all.push_back(t.step(random_batch(3, 48, 300, 100 + i, DeviceType::cpu), 1e-3));
    return all;
  };
  std::vector<double> eager = losses({}), compiled = losses(compile::CompileOptions{});
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(compiled[i], eager[i], 1e-5 * eager[i]) << "step " << i;
}

}  // namespace
}  // namespace sinter
