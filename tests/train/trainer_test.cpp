// Training: the loss falls in every precision, overflow is survived, memory is what was predicted.
#include "train/trainer.h"

#include <cmath>
#include <thread>

#include "nn/transformer.h"
#include "ops/ops.h"
#include "support/values.h"

namespace sinter {
namespace {

ModelConfig little(int64_t vocab = 61, int64_t ctx = 12) {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 2, c.heads = 4, c.vocab = vocab, c.ctx = ctx;
  return c;
}

Trainer trainer_of(const ModelConfig& c, const std::string& dtype, DeviceType device = DeviceType::cpu,
                   const AdamWOptions& adamw = {}) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.device = device;
  o.seed = 1;
  o.optimizer = make_adamw(adamw);
  return Trainer(c, o, make_transformer);
}

class TrainIn : public testing::TestWithParam<const char*> {};

TEST_P(TrainIn, LossFallsOnAFixedBatch) {
  AdamWOptions adamw;
  adamw.max_norm = 1;
  Trainer t = trainer_of(little(), GetParam(), DeviceType::cpu, adamw);
  Batch batch = random_batch(3, 12, 61, 7, DeviceType::cpu);
  double first = t.step(batch, 3e-3), last = first;
  EXPECT_NEAR(first, std::log(61), 0.8) << "an untrained model knows nothing";
  for (int i = 0; i < 29; ++i) last = t.step(batch, 3e-3);
  EXPECT_LT(last, 0.5 * first);
  EXPECT_EQ(t.optimizer().state()[state_step], 30);
}

TEST_P(TrainIn, TheSameSeedGivesTheSameBits) {
  Batch batch = random_batch(2, 12, 61, 7, DeviceType::cpu);
  auto run = [&] {
    Trainer t = trainer_of(little(), GetParam());
    for (int i = 0; i < 3; ++i) t.step(batch, 1e-3);
    return copy(t.parameters().master().detach());
  };
  EXPECT_TRUE(same_bits(run(), run()));
}

INSTANTIATE_TEST_SUITE_P(Precisions, TrainIn, testing::Values("fp32", "bf16", "fp16", "fp64"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Trainer, MixedPrecisionStaysNearFp32) {
  Batch batch = random_batch(2, 12, 61, 7, DeviceType::cpu);
  auto losses = [&](const char* dtype) {
    Trainer t = trainer_of(little(), dtype);
    Values l;
    for (int i = 0; i < 5; ++i) l.push_back(t.step(batch, 1e-3));
    return l;
  };
  Values exact = losses("fp64");
  EXPECT_TRUE(near(losses("fp32"), exact, 1e-5, 0));
  EXPECT_TRUE(near(losses("fp16"), exact, 3e-3, 0));
  EXPECT_TRUE(near(losses("bf16"), exact, 2e-2, 0));
}

TEST(Trainer, ForcedOverflowSkipsHalvesAndRecovers) {
  AdamWOptions adamw;
  adamw.initial_loss_scale = 0x1p40;
  Trainer t = trainer_of(little(), "fp16", DeviceType::cpu, adamw);
  Batch batch = random_batch(2, 12, 61, 7, DeviceType::cpu);
  Tensor master = copy(t.parameters().master().detach()), low = copy(t.parameters().low_copy());
  double first = t.step(batch, 1e-3);
  EXPECT_TRUE(std::isfinite(first)) << "only the gradients overflow";
  EXPECT_TRUE(same_bits(t.parameters().master().detach(), master));
  EXPECT_TRUE(same_bits(t.parameters().low_copy(), low));
  EXPECT_EQ(t.optimizer().state()[state_loss_scale], 0x1p39);
  EXPECT_EQ(t.optimizer().state()[state_skipped], 1);
  int steps = 0;
  for (; t.optimizer().state()[state_step] < 10 && steps < 60; ++steps) t.step(batch, 3e-3);
  EXPECT_LT(steps, 60) << "the scale comes down until a step succeeds";
  for (double x : to_vector(t.parameters().master().detach())) ASSERT_TRUE(std::isfinite(x));
  EXPECT_LT(t.step(batch, 3e-3), first);
}

// And forgets those of the pass before.
TEST(Trainer, AddsGradientsOfMicroBatches) {
  Trainer whole = trainer_of(little(), "fp64"), halves = trainer_of(little(), "fp64");
  Batch b = random_batch(2, 12, 61, 7, DeviceType::cpu);
  Tensor expected = whole.run(Pass::forward_backward, b);
  std::vector<Batch> parts{{slice(b.ids, 1, 0, 1)}, {slice(b.ids, 1, 1, 1)}};
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(item(halves.run(Pass::forward_backward, parts)), item(expected), 1e-12);
  EXPECT_TRUE(near(whole.parameters().grad(), halves.parameters().grad(), 0, 1e-12));
}

// Contexts belong to threads, the allocator and the thread pool to all.
TEST(Trainer, TwoThreadsTrainSideBySide) {
  auto train = [](Tensor& result) {
    Trainer t = trainer_of(little(), "bf16");
    Batch batch = random_batch(2, 12, 61, 7, DeviceType::cpu);
    for (int i = 0; i < 5; ++i) t.step(batch, 1e-3);
    result = copy(t.parameters().master().detach());
  };
  Tensor alone, one, two;
  train(alone);
  std::thread a([&] { train(one); }), b([&] { train(two); });
  a.join(), b.join();
  EXPECT_TRUE(near(one, alone, 1e-3, 1e-4)) << "products may differ in the last bit with the number of threads";
  EXPECT_TRUE(near(two, alone, 1e-3, 1e-4));
}

// Every pass, over one batch and over several, eager and compiled: the mean loss of the whole, and its gradient.
TEST(Trainer, PassesAgreeOverMicroBatchesAndModes) {
  Batch b = random_batch(4, 12, 61, 7, DeviceType::cpu);
  std::vector<Batch> quarters;
  for (int64_t i = 0; i < 4; ++i) quarters.push_back({slice(b.ids, 1, i, 1)});
  Trainer reference = trainer_of(little(), "fp64");
  double loss = item(reference.run(Pass::forward_backward, b));
  Values gradient = to_vector(reference.parameters().grad()), logits = to_vector(reference.run(Pass::forward, b));
  Values last(logits.end() - int64_t(logits.size()) / 4, logits.end());
  for (bool compiled : {false, true}) {
    TrainerOptions o;
    o.precision = precision_named("fp64");
    o.seed = 1;
    if (compiled) o.compiled.emplace();
    Trainer t(little(), o, make_transformer);
    for (int again = 0; again < 2; ++again) {
      SCOPED_TRACE(compiled ? "compiled" : "eager");
      EXPECT_NEAR(item(t.run(Pass::evaluate, b)), loss, 1e-12);
      EXPECT_NEAR(item(t.run(Pass::evaluate, quarters)), loss, 1e-12);
      EXPECT_NEAR(item(t.run(Pass::forward_backward, b)), loss, 1e-12);
      EXPECT_TRUE(near(to_vector(t.parameters().grad()), gradient, 0, 1e-12));
      EXPECT_NEAR(item(t.run(Pass::forward_backward, quarters)), loss, 1e-12);
      EXPECT_TRUE(near(to_vector(t.parameters().grad()), gradient, 0, 1e-12));
      EXPECT_TRUE(near(to_vector(t.run(Pass::forward, b)), logits, 0, 1e-12));
      EXPECT_TRUE(near(to_vector(t.run(Pass::forward, quarters)), last, 0, 1e-12)) << "those of the last";
    }
  }
}

TEST(Trainer, PassesLeaveNoTape) {
  Trainer t = trainer_of(little(), "fp32");
  Batch b = random_batch(2, 12, 61, 7, DeviceType::cpu);
  for (Pass pass : {Pass::forward, Pass::evaluate, Pass::forward_backward, Pass::step})
    EXPECT_FALSE(t.run(pass, b).requires_grad());
}

TEST(Trainer, BatchesAreReproducible) {
  Batch a = random_batch(2, 12, 61, 7, DeviceType::cpu), b = random_batch(2, 12, 61, 7, DeviceType::cpu);
  EXPECT_TRUE(same_bits(a.ids, b.ids));
  EXPECT_NE(to_vector(a.tokens()), to_vector(a.targets()));
  EXPECT_NE(to_vector(a.tokens()), to_vector(random_batch(2, 12, 61, 8, DeviceType::cpu).tokens()));
  for (double id : to_vector(a.tokens())) EXPECT_TRUE(id >= 0 && id < 61);
}

// --- predicted memory --------------------------------------------------------------------------------------------

struct Peaks {
  int64_t forward, step, after;
  bool operator==(const Peaks&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Peaks& p) {
  return out << "forward " << p.forward << ", step " << p.step << ", after " << p.after;
}

Peaks peaks_on(DeviceType device, const ModelConfig& c, const std::string& dtype, int64_t batch_size,
               const AdamWOptions& adamw) {
  CachingAllocator& a = allocator_of(device);
  a.release_cached();
  int64_t before = a.stats().allocated;
  Trainer t = trainer_of(c, dtype, device, adamw);
  Batch batch = random_batch(batch_size, c.ctx, c.vocab, 3, device);
  a.reset_peak();
  t.run(Pass::forward, batch);
  Peaks p{a.stats().peak_allocated - before, 0, 0};
  a.reset_peak();
  for (int i = 0; i < 2; ++i) t.run(Pass::step, batch);
  p.step = a.stats().peak_allocated - before;
  p.after = a.stats().allocated - before;
  return p;
}

TEST(PredictedMemory, MetaPeakEqualsTheMeasuredOne) {
  Rng rng(5);
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (int round = 0; round < 4; ++round) {
      ModelConfig c;
      c.heads = integer(rng, 1, 5);
      c.d_model = c.heads * 2 * integer(rng, 3, 20);
      c.d_ff = integer(rng, 10, 300);
      c.layers = integer(rng, 1, 4);
      c.vocab = integer(rng, 50, 3000);
      c.ctx = integer(rng, 3, 70);
      AdamWOptions adamw;
      adamw.max_norm = round % 2;
      int64_t batch = integer(rng, 1, 5);
      Peaks meta = peaks_on(DeviceType::meta, c, dtype, batch, adamw),
            real = peaks_on(DeviceType::cpu, c, dtype, batch, adamw);
      EXPECT_EQ(meta, real) << dtype << " d " << c.d_model << " ff " << c.d_ff << " layers " << c.layers << " heads "
                            << c.heads << " vocab " << c.vocab << " ctx " << c.ctx << " batch " << batch;
      EXPECT_GT(real.step, real.forward);
    }
}

TEST(PredictedMemory, ASecondStepNeedsNoMoreThanTheFirst) {
  CachingAllocator& a = allocator_of(DeviceType::cpu);
  Trainer t = trainer_of(little(), "bf16");
  Batch batch = random_batch(2, 12, 61, 7, DeviceType::cpu);
  t.step(batch, 1e-3);
  int64_t after = a.stats().allocated;
  a.reset_peak();
  t.step(batch, 1e-3);
  int64_t peak = a.stats().peak_allocated;
  for (int i = 0; i < 3; ++i) t.step(batch, 1e-3);
  EXPECT_EQ(a.stats().allocated, after) << "nothing leaks from step to step";
  EXPECT_EQ(a.stats().peak_allocated, peak);
}

}  // namespace
}  // namespace sinter
