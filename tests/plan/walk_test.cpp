// What the memory experiment says of a run, and that its prediction is what happens.
#include "plan/walk.h"

#include "core/range.h"
#include "lab/memory/memory_json.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "plan/fit.h"
#include "plan/gpus.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter::plan {
namespace {

RunConfig config_of(const ModelConfig& model, int64_t batch, const std::string& dtype, Pass pass, DeviceType device) {
  RunConfig c;
  c.model = model;
  c.batch = batch;
  c.precision = precision_named(dtype);
  c.pass = pass;
  c.device = device;
  return c;
}

ModelConfig little() {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 3, c.heads = 4, c.vocab = 61, c.ctx = 16;
  return c;
}

void expect_prediction_is_exact(const RunConfig& c) {
  Walk real = walk(c, make_transformer), dry = walk_on_meta(c, target_of(c.device), make_transformer);
  std::vector<PhaseUsage> a = usage_by_phase(real), b = usage_by_phase(dry);
  ASSERT_EQ(a.size(), b.size()) << c.text();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name) << c.text();
    EXPECT_EQ(a[i].peak.by, b[i].peak.by) << c.text() << ", peak of " << a[i].name;
    EXPECT_EQ(a[i].end.by, b[i].end.by) << c.text() << ", end of " << a[i].name;
  }
  EXPECT_EQ(peak_reserved(real), peak_reserved(dry)) << c.text();
  EXPECT_TRUE(real.leaks.empty()) << c.text();
  Prediction need = predict(c, target_of(c.device), make_transformer);
  EXPECT_EQ(need.bytes(), peak_of(a).bytes) << c.text();
}

void expect_exact_for_random_shapes(DeviceType device, uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < 8; ++i) {
    ModelConfig m;
    m.heads = integer(rng, 1, 5);
    m.d_model = m.heads * 2 * integer(rng, 1, 20);
    m.d_ff = integer(rng, 1, 200), m.layers = integer(rng, 1, 5), m.vocab = integer(rng, 2, 600);
    m.ctx = integer(rng, 1, 70);
    while (m.heads % (m.kv_heads = integer(rng, 1, m.heads + 1)) != 0) {
    }
    m.attention.kind = i % 4 < 2 ? AttentionKind::automatic : AttentionKind::naive;
    for (const char* dtype : {"fp32", "bf16", "fp16"})
      expect_prediction_is_exact(config_of(m, integer(rng, 1, 5), dtype, i % 2 ? Pass::step : Pass::forward, device));
  }
}

TEST(PredictedMemory, EqualsTheMeasuredForRandomShapes) { expect_exact_for_random_shapes(DeviceType::cpu, 11); }
TEST(PredictedMemoryGpu, EqualsTheMeasuredForRandomShapes) {
  SINTER_REQUIRE_GPU();
  expect_exact_for_random_shapes(DeviceType::cuda, 12);
}

TEST(PredictedMemory, EqualsTheMeasuredForSizesAndContexts) {
  for (const char* size : {"tiny", "mini"})
    for (int64_t ctx : {128, 256, 512})
      for (const char* dtype : {"fp32", "bf16"})
        for (Pass pass : {Pass::forward, Pass::step}) {
          ModelConfig m = known_size(size);
          m.ctx = ctx;
          m.attention.kind = pass == Pass::forward ? AttentionKind::naive : AttentionKind::flash;
          expect_prediction_is_exact(config_of(m, 1, dtype, pass, DeviceType::cpu));
        }
}

TEST(PredictedMemory, FlashHoldsNoScores) {
  auto peak = [](AttentionKind kind, int64_t ctx) {
    ModelConfig m = known_size("tiny");
    m.ctx = ctx, m.attention.kind = kind;
    return double(
        predict(config_of(m, 1, "fp32", Pass::step, DeviceType::cpu), target_of(DeviceType::cpu), make_transformer)
            .walk.steady.peak_allocated);
  };
  double scores = 4.0 * 8 * 4096 * 4096 * 4;  // layers × heads × ctx² × fp32
  EXPECT_GT(peak(AttentionKind::naive, 4096), scores);
  EXPECT_LT(peak(AttentionKind::flash, 4096), scores);
  EXPECT_LT(peak(AttentionKind::flash, 4096), 2.1 * peak(AttentionKind::flash, 2048)) << "linear in the context";
}

TEST(Walk, PhasesHoldWhatTheyShould) {
  RunConfig c = config_of(little(), 2, "bf16", Pass::step, DeviceType::cpu);
  Walk run = walk(c, make_transformer);
  std::vector<PhaseUsage> p = usage_by_phase(run);
  std::vector<std::string> names;
  for (auto& x : p) names.push_back(x.name);
  EXPECT_EQ(names, (std::vector<std::string>{"init", "forward", "backward", "optimizer", "forward 2", "backward 2",
                                             "optimizer 2"}));
  auto held = [](const Usage& u, MemoryCategory c) { return u.by[size_t(c)]; };
  EXPECT_GT(held(p[0].end, MemoryCategory::parameter), 0);
  EXPECT_EQ(held(p[1].peak, MemoryCategory::gradient), 0) << "a forward pass needs no gradients";
  EXPECT_GT(held(p[1].end, MemoryCategory::activation), 0) << "saved for backward";
  EXPECT_GT(held(p[2].peak, MemoryCategory::gradient), 0);
  EXPECT_EQ(held(p[2].end, MemoryCategory::temporary), 0);
  EXPECT_EQ(held(p[2].end, MemoryCategory::optimizer), 0) << "the first step makes the moments";
  EXPECT_GT(held(p[3].end, MemoryCategory::optimizer), 2 * held(p[3].end, MemoryCategory::gradient) - 4096);
  EXPECT_EQ(p[3].end.by, p[6].end.by) << "every later pass ends like the first";
  int64_t sum = 0;
  for (int64_t b : p[5].peak.by) sum += b;
  EXPECT_EQ(sum, p[5].peak.bytes);
}

TEST(Walk, TheLargestAreNamedWithTheirPlace) {
  RunConfig c = config_of(little(), 2, "fp32", Pass::step, DeviceType::cpu);
  std::vector<HeldAtPeak> held = held_at_peak(walk(c, make_transformer));
  ASSERT_FALSE(held.empty());
  bool gate_up = false;
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_LE(held[i].bytes, held[i ? i - 1 : 0].bytes);
    if (held[i].range != "step/forward/layers.*/ffn/gate_up/linear") continue;
    gate_up = true;
    EXPECT_EQ(held[i].count, 3) << "one of each layer";
    EXPECT_EQ(held[i].tensor, "fp32 [2, 16, 96]");
    EXPECT_EQ(held[i].source.compare(0, 18, "src/nn/layers.cpp:"), 0) << held[i].source;
  }
  EXPECT_TRUE(gate_up);
  c.mode = Mode::compiled;
  for (const HeldAtPeak& h : held_at_peak(walk(c, make_transformer)))
    EXPECT_EQ(h.source.compare(0, 4, "src/"), 0) << h.range << ": " << h.source;
}

// Keeps a tensor of every forward pass.
struct Leaky : Model {
  explicit Leaky(const ModelConfig& c, Parameters& p) : inner(make_transformer(c, p)) {}
  Tensor logits(const Tensor& tokens) const override {
    Tensor y = inner->logits(tokens);
    Range range("statistics");
    NoGrad off;
    kept.push_back(copy(y.detach()));
    return y;
  }
  std::unique_ptr<Model> inner;
  mutable std::vector<Tensor> kept;
};

TEST(Walk, APlantedLeakIsReportedWithItsRange) {
  RunConfig c = config_of(little(), 2, "fp32", Pass::step, DeviceType::cpu);
  auto leaky = [](const ModelConfig& config, Parameters& p) { return std::make_unique<Leaky>(config, p); };
  Walk run = walk(c, leaky);
  ASSERT_EQ(run.leaks.size(), 1u);
  EXPECT_EQ(range_of(run.leaks[0].first).path(), "step/forward/statistics/copy");
  EXPECT_EQ(run.leaks[0].second, CachingAllocator::rounded(2 * 16 * 61 * 4));
}

TEST(Walk, TheTimelineAddsUpToThePeak) {
  RunConfig c = config_of(little(), 2, "fp32", Pass::step, DeviceType::cpu);
  for (DeviceType where : {DeviceType::cpu, DeviceType::meta}) {
    Walk run = where == DeviceType::cpu ? walk(c, make_transformer)
                                        : walk_on_meta(c, target_of(DeviceType::cpu), make_transformer);
    Json t = lab::timeline_json(run, c, "the CPU", where == DeviceType::meta);
    std::map<double, int64_t> change;
    for (size_t i = 0; i < t["begin"].size(); ++i) {
      change[t["begin"][i]] += t["bytes"][i].get<int64_t>();
      if (!t["end"][i].is_null()) change[t["end"][i]] -= t["bytes"][i].get<int64_t>();
      EXPECT_LT(t["range"][i].get<size_t>(), t["ranges"].size());
    }
    int64_t now = 0, peak = 0;
    for (auto [time, bytes] : change) peak = std::max(peak, now += bytes);
    EXPECT_EQ(peak, peak_of(usage_by_phase(run)).bytes);
    for (size_t i = 1; i < t["ranges"].size(); ++i) EXPECT_LT(t["ranges"][i]["parent"].get<size_t>(), i);
  }
}

TEST(Cards, TheCheapestChangeMakesItFit) {
  RunConfig c = config_of(known_size("xl"), 4, "fp32", Pass::step, DeviceType::cuda);
  c.model.ctx = 1024;
  DeviceInfo card = card_named("A100-40").info();
  ASSERT_FALSE(fits(c, card, make_transformer));
  std::string change = cheapest_change(c, card, make_transformer);
  ASSERT_EQ(change.compare(0, 8, "--batch "), 0) << change;
  c.batch = std::stoll(change.substr(8));
  EXPECT_GE(c.batch, 1);
  EXPECT_TRUE(fits(c, card, make_transformer));
  ++c.batch;
  EXPECT_FALSE(fits(c, card, make_transformer)) << "no larger batch fits";
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { card_named("GTX"); }), {"--card GTX", "4090-24"}));
}

TEST(Cards, AChangeThatIsNotAboutRoomIsFoundToo) {
  RunConfig c = config_of(known_size("small"), 4, "bf16", Pass::step, DeviceType::cuda);
  EXPECT_FALSE(fits(c, card_named("T4-16").info(), make_transformer)) << "it has no bf16";
  EXPECT_EQ(cheapest_change(c, card_named("T4-16").info(), make_transformer), "--dtype fp16");

  RunConfig narrow = config_of(known_size("tiny"), 1, "fp32", Pass::step, DeviceType::cuda);
  narrow.model.layers = 900, narrow.model.ctx = 32, narrow.model.name = "custom";
  EXPECT_EQ(cheapest_change(narrow, card_named("T4-16").info(), make_transformer),
            "--size medium in place of the shape flags");
}

TEST(Cards, FlashAttentionIsTheFirstChange) {
  RunConfig c = config_of(known_size("small"), 4, "bf16", Pass::step, DeviceType::cuda);
  c.model.ctx = 4096, c.model.attention.kind = AttentionKind::naive;
  ASSERT_FALSE(fits(c, card_named("4090-24").info(), make_transformer));
  EXPECT_EQ(cheapest_change(c, card_named("4090-24").info(), make_transformer), "--attention flash");

  RunConfig old = config_of(known_size("small"), 1, "fp32", Pass::step, DeviceType::cuda);
  old.model.attention.kind = AttentionKind::flash;
  EXPECT_FALSE(fits(old, card_named("T4-16").info(), make_transformer)) << "it has no flash attention";
  EXPECT_EQ(cheapest_change(old, card_named("T4-16").info(), make_transformer), "--attention naive");
}

TEST(Cards, ItMayTakeAShorterContext) {
  RunConfig c = config_of(known_size("large"), 1, "fp32", Pass::step, DeviceType::cuda);
  c.model.ctx = 8192;
  std::string change = cheapest_change(c, card_named("4090-24").info(), make_transformer);
  EXPECT_NE(change.find("--batch 1 --ctx "), std::string::npos) << change;
}

// Stops after a few allocations, as a device that is full.
TEST(Walk, APlantedOutOfMemoryKeepsItsEvents) {
  RunConfig c = config_of(little(), 2, "fp32", Pass::step, DeviceType::cpu);
  auto greedy = [](const ModelConfig& config, Parameters& p) {
    struct Greedy : Model {
      std::unique_ptr<Model> inner;
      Tensor logits(const Tensor& tokens) const override {
        Range range("greedy");
        return add(inner->logits(tokens), empty({int64_t(1) << 50}, DType::f32, DeviceType::cpu));
      }
    };
    auto m = std::make_unique<Greedy>();
    m->inner = make_transformer(config, p);
    return m;
  };
  Walk run = walk(c, greedy);
  EXPECT_TRUE(mentions(run.out_of_memory, {"out of memory on cpu", "parameter", "init", "(in step/forward/greedy"}));
  EXPECT_EQ(run.phases.back().name, "out of memory");
  bool seen = false;
  for (const MemoryEvent& e : run.memory.events) seen = seen || e.action == MemoryEvent::out_of_memory;
  EXPECT_TRUE(seen);
  EXPECT_EQ(usage_by_phase(run).back().end.bytes, 0) << "everything was given back";
}

}  // namespace
}  // namespace sinter::plan
