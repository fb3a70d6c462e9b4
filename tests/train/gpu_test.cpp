// The whole model on the GPU: like the CPU in fp32, learning in 16 bits, and within the predicted memory.
#include "support/gpu.h"

#include <cmath>

#include "nn/transformer.h"
#include "ops/ops.h"
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {
namespace {

// Head dimension 80, an odd vocabulary, a context that is no multiple of anything.
ModelConfig odd() {
  ModelConfig c;
  c.d_model = 160, c.d_ff = 200, c.layers = 2, c.heads = 2, c.vocab = 1003, c.ctx = 37;
  return c;
}

Trainer trainer_of(const ModelConfig& c, const std::string& dtype, DeviceType device, const AdamWOptions& adamw = {}) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.device = device;
  o.seed = 1;
  o.optimizer = make_adamw(adamw);
  return Trainer(c, o, make_transformer);
}
Batch batch_on(DeviceType device) { return random_batch(3, 37, 1003, 7, device); }

TEST(TransformerGpu, BeginsWithTheSameBits) {
  SINTER_REQUIRE_GPU();
  Trainer cpu = trainer_of(odd(), "bf16", DeviceType::cpu), gpu = trainer_of(odd(), "bf16", DeviceType::cuda);
  EXPECT_TRUE(same_bits(cpu.parameters().master().detach(), gpu.parameters().master().detach()));
  EXPECT_TRUE(same_bits(cpu.parameters().low_copy(), gpu.parameters().low_copy()));
  EXPECT_TRUE(same_bits(batch_on(DeviceType::cpu).ids, batch_on(DeviceType::cuda).ids));
}

TEST(TransformerGpu, ForwardAndBackwardMatchTheCpu) {
  SINTER_REQUIRE_GPU();
  Trainer exact = trainer_of(odd(), "fp64", DeviceType::cpu);
  Values logits = to_vector(exact.run(Pass::forward, batch_on(DeviceType::cpu)));
  double exact_loss = item(exact.run(Pass::forward_backward, batch_on(DeviceType::cpu)));
  struct Bound {
    const char* dtype;
    double forward, gradient;
  };
  for (Bound b :
       {Bound{"fp32", 1e-5, 1e-5}, Bound{"tf32", 3e-3, 1e-2}, Bound{"fp16", 5e-3, 1e-2}, Bound{"bf16", 3e-2, 6e-2}}) {
    SCOPED_TRACE(b.dtype);
    Trainer gpu = trainer_of(odd(), b.dtype, DeviceType::cuda);
    EXPECT_LE(normwise_error(to_vector(gpu.run(Pass::forward, batch_on(DeviceType::cuda))), logits), b.forward);
    double loss = item(gpu.run(Pass::forward_backward, batch_on(DeviceType::cuda)));
    EXPECT_NEAR(loss, exact_loss, b.forward * exact_loss);
    Tensor scale = gpu.optimizer().loss_scale(DType::f32);
    double factor = scale.defined() ? 1 / item(scale) : 1;
    for (const auto& e : gpu.parameters().entries()) {
      auto gradient_in = [&](Trainer& t) {
        return to_vector(t.parameters().role("gradient").view(t.parameters().find(e.name)));
      };
      Values g = gradient_in(gpu);
      for (double& x : g) x *= factor;
      EXPECT_LE(normwise_error(g, gradient_in(exact)), b.gradient) << e.name;
    }
  }
}

class TrainGpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SINTER_REQUIRE_GPU(); }
};

TEST_P(TrainGpu, LossFallsOnAFixedBatch) {
  AdamWOptions adamw;
  adamw.max_norm = 1;
  Trainer t = trainer_of(odd(), GetParam(), DeviceType::cuda, adamw);
  Batch batch = batch_on(DeviceType::cuda);
  double first = t.step(batch, 2e-3), last = first;
  EXPECT_NEAR(first, std::log(1003), 0.8);
  for (int i = 0; i < 29; ++i) last = t.step(batch, 2e-3);
  EXPECT_LT(last, 0.5 * first);
}

TEST_P(TrainGpu, TheSameSeedGivesTheSameBits) {
  Batch batch = batch_on(DeviceType::cuda);
  auto run = [&] {
    Trainer t = trainer_of(odd(), GetParam(), DeviceType::cuda);
    for (int i = 0; i < 3; ++i) t.step(batch, 1e-3);
    return to(t.parameters().master().detach(), DeviceType::cpu);
  };
  EXPECT_TRUE(same_bits(run(), run()));
}

INSTANTIATE_TEST_SUITE_P(Precisions, TrainGpu, testing::Values("fp32", "tf32", "bf16", "fp16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TrainerGpu, ForcedOverflowSkipsHalvesAndRecovers) {
  SINTER_REQUIRE_GPU();
  AdamWOptions adamw;
  adamw.initial_loss_scale = 0x1p40;
  Trainer t = trainer_of(odd(), "fp16", DeviceType::cuda, adamw);
  Batch batch = batch_on(DeviceType::cuda);
  Tensor before = copy(t.parameters().master().detach());
  double first = t.step(batch, 1e-3);
  EXPECT_TRUE(same_bits(t.parameters().master().detach(), before));
  EXPECT_EQ(t.optimizer().state()[state_loss_scale], 0x1p39);
  int steps = 0;
  for (; t.optimizer().state()[state_step] < 10 && steps < 60; ++steps) t.step(batch, 2e-3);
  EXPECT_LT(steps, 60);
  EXPECT_LT(t.step(batch, 2e-3), first);
}

TEST(PredictedMemoryGpu, MetaPeakEqualsTheMeasuredOne) {
  SINTER_REQUIRE_GPU();
  MetaTarget target(target_of(DeviceType::cuda));
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    auto peak_on = [&](DeviceType device) {
      CachingAllocator& a = allocator_of(device);
      a.release_cached();
      int64_t before = a.stats().allocated;
      a.reset_peak();
      Trainer t = trainer_of(odd(), dtype, device);
      Batch batch = batch_on(device);
      for (int i = 0; i < 2; ++i) t.run(Pass::step, batch);
      return a.stats().peak_allocated - before;
    };
    EXPECT_EQ(peak_on(DeviceType::meta), peak_on(DeviceType::cuda)) << dtype;
  }
}

}  // namespace
}  // namespace sinter
