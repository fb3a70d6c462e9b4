// Steps by micro-batches: the mean over them, and compiled the same bits as eager in the memory of one arena.
#include <algorithm>

#include "nn/transformer.h"
#include "ops/ops.h"
#include "plan/prediction.h"
#include "support/gpu.h"
#include "support/values.h"
#include "train/workload.h"

namespace sinter {
namespace {

ModelConfig little() {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.vocab = 61, c.ctx = 12;
  c.attention = {AttentionKind::flash, true, 0};
  return c;
}

TrainerOptions options(const char* dtype, DeviceType device, double clip = 0) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.device = device;
  o.seed = 1;
  AdamWOptions adamw;
  adamw.max_norm = clip;
  o.optimizer = make_adamw(adamw);
  return o;
}

std::vector<Batch> batches(size_t count, int64_t size, uint64_t seed, DeviceType device) {
  std::vector<Batch> all;
  for (size_t i = 0; i < count; ++i) all.push_back(random_batch(size, 12, 61, seed * 100 + i, device));
  return all;
}

TEST(Accumulation, TakesTheMeanOverMicroBatches) {
  Trainer whole(little(), options("fp64", DeviceType::cpu, 1), make_transformer);
  Trainer parts(little(), options("fp64", DeviceType::cpu, 1), make_transformer);
  for (uint64_t i = 0; i < 3; ++i) {
    Batch b = random_batch(4, 12, 61, i, DeviceType::cpu);
    std::vector<Batch> quarters;
    for (int64_t q = 0; q < 4; ++q) quarters.push_back({slice(b.ids, 1, q, 1)});
    EXPECT_NEAR(whole.step(b, 1e-3), parts.step(quarters, 1e-3), 1e-12);
  }
  EXPECT_TRUE(near(whole.parameters().master().detach(), parts.parameters().master().detach(), 0, 1e-10));
  EXPECT_EQ(parts.optimizer().state()[state_step], 3);
}

TEST(Accumulation, RefusesAStepOfNothing) {
  Trainer t(little(), options("fp32", DeviceType::cpu), make_transformer);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { t.step(std::span<const Batch>(), 1e-3); }), {"micro-batch"}));
}

// How many there are changes, and the learning rate, and the shape; in between a step of one batch; a
// weight is written from outside.
void expect_same_bits(const char* dtype, double clip, DeviceType device, const compile::CompileOptions& how) {
  struct Step {
    size_t count;
    int64_t size;
  };
  const Step steps[] = {{2, 2}, {3, 2}, {3, 2}, {1, 2}, {4, 2}, {4, 2}, {3, 5}, {3, 5}, {3, 2}, {1, 5}, {2, 2}};
  auto run = [&](bool compiled) {
    TrainerOptions o = options(dtype, device, clip);
    if (compiled) o.compiled = how;
    Trainer t(little(), o, make_transformer);
    std::vector<double> losses;
    for (uint64_t i = 0; i < std::size(steps); ++i) {
      if (i == 5) fill(t.parameters().find("layers.0.attn.o.weight").value, 0.01);
      losses.push_back(t.step(batches(steps[i].count, steps[i].size, i, device), 1e-3 * double(i + 1)));
    }
    return std::pair(losses, to(t.parameters().master().detach(), DeviceType::cpu));
  };
  auto [eager_losses, eager] = run(false);
  auto [losses, compiled] = run(true);
  EXPECT_EQ(losses, eager_losses) << dtype;
  EXPECT_TRUE(same_bits(compiled, eager)) << dtype;
}

TEST(Accumulation, CompiledEqualsEagerBitForBit) {
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (double clip : {0.0, 1.0})
      for (const compile::CompileOptions& how : {compile::CompileOptions{}, {{"dce", "cse", "plan", "graph"}}})
        expect_same_bits(dtype, clip, DeviceType::cpu, how);
}
TEST(AccumulationGpu, CompiledEqualsEagerBitForBit) {
  SINTER_REQUIRE_GPU();
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (const compile::CompileOptions& how : {compile::CompileOptions{{"join", "beta", "fuse", "rows", "fold"}},
                                               {{"join", "beta", "fuse", "rows", "fold", "graph"}}})
      expect_same_bits(dtype, 0, DeviceType::cuda, how);
}

TEST(Accumulation, TracesEachKindOnce) {
  TrainerOptions o = options("bf16", DeviceType::cpu);
  o.compiled.emplace();
  Trainer t(little(), o, make_transformer);
  auto traces = [&] {
    size_t all = 0;
    for (const Trainer::Replayed& r : t.replayed()) all += r.compiled->traces();
    return all;
  };
  t.step(batches(2, 2, 1, DeviceType::cpu), 1e-3);
  EXPECT_EQ(traces(), 2u) << "the first overwrites gradients, the last adds to them and updates";
  t.step(batches(5, 2, 2, DeviceType::cpu), 2e-3);
  EXPECT_EQ(traces(), 3u) << "those in between add";
  t.step(batches(3, 2, 3, DeviceType::cpu), 1e-3);
  EXPECT_EQ(traces(), 3u);
}

// The memory of a step by micro-batches: all that lasts, and one arena.
TEST(Accumulation, TakesTheArenaOfTheLargestTrace) {
  CachingAllocator& allocator = allocator_of(DeviceType::cpu);
  int64_t before = allocator.stats().allocated;
  TrainerOptions o = options("bf16", DeviceType::cpu);
  o.compiled.emplace();
  Trainer t(little(), o, make_transformer);
  t.optimizer().allocate();
  t.parameters().allocate_grad();
  int64_t lasting = allocator.stats().allocated - before, largest = 0, sum = 0;
  auto micro_batches = batches(2, 8, 1, DeviceType::cpu);
  int64_t inputs = allocator.stats().allocated - before - lasting;
  t.step(micro_batches, 1e-3);
  for (const Trainer::Replayed& r : t.replayed()) {
    ASSERT_EQ(r.compiled->traces(), 1u);
    int64_t bytes = r.compiled->compilation().executable->graph().arena_bytes;
    largest = std::max(largest, bytes), sum += bytes;
  }
  int64_t scalars = 2 * 512;  // the loss and the share
  EXPECT_EQ(allocator.stats().allocated - before, lasting + 2 * inputs + scalars + largest);
  EXPECT_LT(largest, sum);
}

void expect_predicted_memory(DeviceType device) {
  for (Mode mode : {Mode::eager, Mode::compiled}) {
    RunConfig c;
    c.model = little();
    c.device = device, c.precision = precision_named("bf16"), c.mode = mode, c.accumulate = 3;
    plan::Prediction need = plan::predict(c, target_of(device), make_transformer);
    CachingAllocator& allocator = allocator_of(device);
    allocator.release_cached();
    int64_t before = allocator.stats().allocated;
    allocator.reset_peak();
    Workload work(c, device, make_transformer);
    work.run();
    EXPECT_EQ(allocator.stats().peak_allocated - before, need.walk.first.peak_allocated) << c.text();
    for (int i = 0; i < 2; ++i) work.run();
    allocator.reset_peak();
    work.run();
    EXPECT_EQ(allocator.stats().peak_allocated - before, need.walk.steady.peak_allocated) << c.text();
  }
}
TEST(Accumulation, TakesThePredictedMemory) { expect_predicted_memory(DeviceType::cpu); }
TEST(AccumulationGpu, TakesThePredictedMemory) {
  SINTER_REQUIRE_GPU();
  expect_predicted_memory(DeviceType::cuda);
}

}  // namespace
}  // namespace sinter
