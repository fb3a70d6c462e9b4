// Training compiled: the same bits as eager, step after step, where the arithmetic is the same.
#include <cmath>

#include "compile/lane_order.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "core/folded_update.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "plan/prediction.h"
#include "support/gpu.h"
#include "support/graph_checks.h"
#include "support/targets.h"
#include "support/threads.h"
#include "support/values.h"
#include "train/workload.h"

namespace sinter {
namespace {

ModelConfig little(AttentionKind attention) {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.vocab = 61, c.ctx = 12;
  c.attention = {attention, true, 0};
  return c;
}

struct Case {
  const char* dtype;
  AttentionKind attention;
  double clip;
  bool tied = false;
};

// Steps with batches and learning rates that change, a weight that is written from outside, and sequences that become
// fewer. Losses, and then the parameters.
struct Trained {
  std::vector<double> losses;
  Tensor parameters;
};
Trained train(const Case& k, DeviceType device, std::optional<compile::CompileOptions> how) {
  TrainerOptions o;
  o.precision = precision_named(k.dtype);
  o.device = device;
  o.seed = 1;
  AdamWOptions adamw;
  adamw.max_norm = k.clip;
  o.optimizer = make_adamw(adamw);
  o.compiled = std::move(how);
  ModelConfig c = little(k.attention);
  c.tied_embeddings = k.tied;
  Trainer t(c, o, make_transformer);
  Trained r;
  for (uint64_t i = 0; i < 10; ++i) {
    if (i == 3) fill(t.parameters().find("layers.0.attn.o.weight").value, 0.01);  // as a checkpoint would
    r.losses.push_back(t.step(random_batch(i < 7 ? 3 : 2, 12, 61, 100 + i, device), 1e-3 * double(i + 1)));
  }
  r.parameters = to(t.parameters().master().detach(), DeviceType::cpu);
  return r;
}

void expect_same_bits(const Case& k, DeviceType device, const compile::CompileOptions& how) {
  Trained eager = train(k, device, {}), compiled = train(k, device, how);
  EXPECT_EQ(compiled.losses, eager.losses) << k.dtype;
  EXPECT_TRUE(same_bits(compiled.parameters, eager.parameters)) << k.dtype;
}

const Case cases[] = {{"fp32", AttentionKind::flash, 0},      {"fp32", AttentionKind::naive, 1},
                      {"bf16", AttentionKind::flash, 1},      {"bf16", AttentionKind::naive, 0},
                      {"fp16", AttentionKind::flash, 0},      {"fp32", AttentionKind::flash, 0, true},
                      {"bf16", AttentionKind::flash, 1, true}};

TEST(CompiledStep, EqualsEagerBitForBit) {
  for (const Case& k : cases)
    for (const compile::CompileOptions& how : {compile::CompileOptions{}, {{"dce", "cse", "plan", "graph"}}})
      expect_same_bits(k, DeviceType::cpu, how);
}

// Where updates are folded gradients take hardly any memory between steps; eager steps, and traces
// of other shapes, make it again.
void expect_gradients_given_back(DeviceType device, const char* dtype) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.device = device;
  ModelConfig model = little(AttentionKind::flash);
  model.d_model = 64, model.d_ff = 256, model.layers = 4, model.vocab = 16;
  Trainer eager(model, o, make_transformer);
  o.compiled = compile::CompileOptions{};
  Trainer compiled(model, o, make_transformer);
  CachingAllocator& allocator = allocator_of(device);
  int64_t gradient_bytes = compiled.parameters().trainable_size() * 4;
  auto gradients = [&] { return allocator.stats().allocated_by[size_t(MemoryCategory::gradient)]; };
  auto step = [&](Trainer& t, int64_t rows, uint64_t seed) {
    return t.step(random_batch(rows, 12, model.vocab, seed, device), 1e-2);
  };
  double close = device == DeviceType::cpu ? 0 : 1e-3;
  for (uint64_t i = 0; i < 6; ++i) {
    int64_t rows = i < 3 ? 3 : 2, before = gradients();
    double expected = step(eager, rows, i);
    if (i == 0) before = gradients();  // eager's own are there now
    EXPECT_NEAR(step(compiled, rows, i), expected, close) << i;
    EXPECT_FALSE(compiled.parameters().grad().defined());
    EXPECT_LT(gradients() - before, gradient_bytes / 2) << i;
  }
  // A pass that keeps its gradients has memory for them. A step after it forgets them, and is
  // the one that was traced before.
  Batch batch = random_batch(2, 12, model.vocab, 9, device);
  for (Trainer* t : {&eager, &compiled}) t->run(Pass::forward_backward, batch);
  EXPECT_TRUE(compiled.parameters().grad().defined());
  EXPECT_LE(normwise_error(to_vector(compiled.parameters().grad()), to_vector(eager.parameters().grad())),
            device == DeviceType::cpu ? 0 : 1e-2);
  EXPECT_NEAR(step(compiled, 3, 10), step(eager, 3, 10), close);
  EXPECT_EQ(compiled.replayed().back().compiled->traces(), 2u) << "one for each shape";
}
TEST(CompiledStep, GivesMemoryOfGradientsBack) { expect_gradients_given_back(DeviceType::cpu, "fp32"); }
TEST(CompiledStepGpu, GivesMemoryOfGradientsBack) {
  SINTER_REQUIRE_GPU();
  expect_gradients_given_back(DeviceType::cuda, "bf16");
}

TEST(CompiledStep, KeepsTheOrderThatMattersBetweenLanes) {
  auto check = [](const Case& k, const DeviceInfo& target, int least_aside) {
    TrainerOptions o;
    o.precision = precision_named(k.dtype);
    AdamWOptions adamw;
    adamw.max_norm = k.clip;
    o.optimizer = make_adamw(adamw);
    Trainer t(little(k.attention), o, make_transformer);
    compile::Graph g = t.trace(Pass::step, random_batch(2, 12, 61, 1, DeviceType::cpu));
    g.target = target;
    for (const compile::Pass& p : compile::all_passes()) p.run(g, {});
    compile::order_lanes(g);

    EXPECT_GE(std::count_if(g.nodes.begin(), g.nodes.end(), [](const auto& n) { return n.lane == 1; }), least_aside);
    expect_ordered_lanes(g);
  };
  for (const Case& k : cases) {
    check(k, older_gpu(), 11);
    check(k, hopper_gpu(), 1);                // with folded updates
    check(k, target_of(DeviceType::cpu), 1);  // updates alone
  }
}

// On the CPU updates run while the backward pass goes on, whoever has time for them.
TEST(CompiledStep, HasTheSameBitsWithAndWithoutLanesOnTheCpu) {
  ModelConfig model{.d_model = 96, .d_ff = 224, .layers = 2, .heads = 4, .vocab = 300, .ctx = 48};
  for (int threads : {2, 3, 8}) {
    Threads t(threads);
    auto trained = [&](std::vector<std::string> without) {
      TrainerOptions o;
      o.precision = precision_named("fp32");
      o.compiled = compile::CompileOptions{std::move(without)};
      Trainer trainer(model, o, make_transformer);
      for (uint64_t i = 0; i < 12; ++i) trainer.step(random_batch(4, 48, 300, i, DeviceType::cpu), 1e-3);
      return trainer.parameters().master().detach();
    };
    EXPECT_TRUE(same_bits(trained({}), trained({"lanes"}))) << threads << " threads";
  }
}

// A step of a small model after all passes, as on a GPU. Needs a MetaTarget. `change` sees the graph before each pass.
compile::Graph graph_for_cuda(const char* dtype, int64_t layers,
                              const std::function<void(compile::Graph&, std::string_view pass)>& change = {}) {
  TrainerOptions o;
  o.precision = precision_named(dtype);
  o.device = DeviceType::meta;
  ModelConfig small = known_size("small");
  small.attention = {AttentionKind::flash, false, 0};
  small.layers = layers;
  Trainer t(small, o, make_transformer);
  compile::Graph g = t.trace(Pass::step, random_batch(4, small.ctx, small.vocab, 1, DeviceType::meta));
  for (const compile::Pass& p : compile::all_passes()) {
    if (change) change(g, p.name);
    p.run(g, {});
  }
  compile::order_lanes(g);
  return g;
}

// Memory that is used again does not make the chain of the first lane wait for another that is a little behind.
TEST(CompiledStep, LetsLanesFallBehind) {
  MetaTarget target(hopper_gpu());
  for (const char* dtype : {"fp32", "bf16"}) {
    compile::Graph g = graph_for_cuda(dtype, 12);
    auto share_data = [](const compile::Node& x, const compile::Node& y) {
      bool found = false;
      x.for_each_access([&](const compile::Operand& p, const TensorRef& r, bool, bool w) {
        y.for_each_access([&](const compile::Operand& q, const TensorRef& u, bool, bool v) {
          found |= (w || v) && p.buffer == q.buffer && compile::overlap(r, p.offset, u, q.offset);
        });
      });
      return found;
    };
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (int w : g.nodes[i].waits)
        EXPECT_TRUE(g.nodes[i].lane > 0 || int(i) - w >= g.lane_slack || share_data(g.nodes[i], g.nodes[size_t(w)]))
            << dtype << ": " << g.nodes[i].range->path() << " waits for memory that "
            << g.nodes[size_t(w)].range->path() << " has just used";
  }
}

// The weights of a block are updated by one call, those of different blocks by different ones, and each
// when nobody needs it any more.
TEST(CompiledStep, UpdatesABlocksWeightsTogether) {
  MetaTarget target(hopper_gpu());
  compile::Graph g = graph_for_cuda("bf16", 3);
  std::vector<std::string> places;
  std::vector<int> weights;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const compile::Node& n = g.nodes[i];
    if (n.op != &ops::adamw_product) continue;
    places.push_back(n.range->path()), weights.push_back(folded_weights(n.call));
    for (size_t later = i + 1; later < g.nodes.size(); ++later)
      g.nodes[later].for_each_access([&](const compile::Operand& r, const TensorRef& u, bool, bool) {
        for (int w = 0; w < folded_weights(n.call); ++w) {
          int k = folded_input(w, folded_copy);
          EXPECT_FALSE(r.buffer == n.in[k].buffer && compile::overlap(u, r.offset, n.call.in[k], n.in[k].offset))
              << g.nodes[later].range->path() << " reads what " << places.back() << " has changed";
        }
      });
  }
  EXPECT_EQ(weights, (std::vector{1, 4, 4, 4}));
  EXPECT_EQ(places,
            (std::vector<std::string>{"step/backward/head/adamw_product", "step/backward/layers.2/adamw_product",
                                      "step/backward/layers.1/adamw_product", "step/backward/layers.0/adamw_product"}));
}

// What a gradient is made of may be overwritten after it: then its weight does not wait for the rest of the block.
TEST(CompiledStep, UpdatesAWeightBeforeItsGradientsOperandsAreGone) {
  MetaTarget target(hopper_gpu());
  compile::Placed gone;
  compile::Graph g = graph_for_cuda("bf16", 2, [&](compile::Graph& g, std::string_view pass) {
    if (pass != "fold") return;
    std::vector<size_t> gradients;  // of the last layer, whose backward pass comes first
    for (size_t i = 0; i < g.nodes.size(); ++i)
      if (g.nodes[i].op == &ops::linear_weight_grad && g.nodes[i].range->path().find("layers.1") != std::string::npos)
        gradients.push_back(i);
    ASSERT_EQ(gradients.size(), 4u);
    gone = compile::input(g.nodes[gradients[0]], 1);
    compile::Node fill =
        compile::new_call(g, ops::fill, g.nodes[gradients[1]].range, Attrs::of(FillAttrs{}), {}, {gone});
    g.nodes.insert(g.nodes.begin() + int64_t(gradients[1]) + 1, fill);
  });
  std::vector<int> weights;
  bool overwritten = false, read = false;
  for (const compile::Node& n : g.nodes) {
    if (n.op == &ops::adamw_product) weights.push_back(folded_weights(n.call));
    n.for_each_access([&](const compile::Operand& o, const TensorRef& r, bool reads, bool writes) {
      if (o.buffer != gone.at.buffer || !compile::overlap(r, o.offset, gone.ref, gone.at.offset)) return;
      EXPECT_FALSE(reads && overwritten) << n.range->path() << " reads what was there before";
      read |= reads && n.op == &ops::adamw_product;
      overwritten |= writes && n.op == &ops::fill;
    });
  }
  EXPECT_TRUE(read && overwritten);
  EXPECT_EQ(weights, (std::vector{1, 2, 2, 4})) << "the head; the last layer in two calls; the first layer";
}

// Folding and the plan may take gradients' memory only where nobody can look at it afterwards.
TEST(CompiledStep, KeepsGradientsThatAreNotReset) {
  Batch batch = random_batch(2, 12, 61, 1, DeviceType::cpu);
  auto run = [&](bool compiled) {
    Parameters p({DeviceType::cpu, DType::f32, {}, 1});
    std::unique_ptr<Model> model = make_transformer(little(AttentionKind::flash), p);
    p.allocate();
    AdamW optimizer(p, {});
    optimizer.allocate();
    auto step = [&](const std::vector<Tensor>&) {
      p.zero_grad();
      Tensor l = cross_entropy(model->logits(batch.tokens()), batch.targets());
      backward(l);
      optimizer.step();
      return std::vector{l.detach()};
    };
    if (compiled) compile::Compiled(step, DeviceType::cpu)({});
    else step({});
    return std::pair(copy(p.grad().detach()), copy(p.master().detach()));
  };
  auto [eager_grad, eager_master] = run(false);
  auto [grad, master] = run(true);
  EXPECT_TRUE(same_bits(grad, eager_grad));
  EXPECT_TRUE(same_bits(master, eager_master));
}

TEST(CompiledStep, TurnsAWrongTokenIdIntoNaN) {
  TrainerOptions o;
  o.compiled.emplace();
  Trainer t(little(AttentionKind::flash), o, make_transformer);
  Batch good = random_batch(1, 12, 61, 1, DeviceType::cpu), bad = random_batch(1, 12, 61, 1, DeviceType::cpu);
  EXPECT_TRUE(std::isfinite(t.step(good, 1e-3)));
  fill(slice(bad.tokens(), 1, 3, 1), 1000);
  EXPECT_TRUE(std::isnan(t.step(bad, 1e-3)));
}

// But for what is rounded less often or added up in another order.
TEST(CompiledStepGpu, EqualsEagerBitForBitWhereNothingIsFused) {
  SINTER_REQUIRE_GPU();
  for (const Case& k : cases)
    for (const compile::CompileOptions& how :
         {compile::CompileOptions{{"join", "beta", "fuse", "rows", "fold", "causal"}},
          {{"join", "beta", "fuse", "rows", "fold", "causal", "dce", "cse", "plan", "graph"}},
          {{"join", "beta", "fuse", "rows", "fold", "causal", "graph"}}})
      expect_same_bits(k, DeviceType::cuda, how);
}

TEST(CompiledStepGpu, FusedStaysNearEager) {
  SINTER_REQUIRE_GPU();
  for (const Case& k : cases) {
    Trained eager = train(k, DeviceType::cuda, {}), fused = train(k, DeviceType::cuda, compile::CompileOptions{});
    double allowed = std::string(k.dtype) == "fp32" ? 1e-5 : 1e-3;
    EXPECT_TRUE(near(fused.losses, eager.losses, allowed, 0)) << k.dtype;
  }
}

RunConfig run_config(DeviceType device, const char* dtype, Pass pass) {
  RunConfig c;
  c.model = known_size("tiny");
  c.model.ctx = 32;
  c.model.attention = {AttentionKind::flash, false, 0};
  c.device = device, c.precision = precision_named(dtype), c.pass = pass, c.mode = Mode::compiled;
  return c;
}

// Not even while it is compiled does a step whose gradients are never stored take memory for them.
TEST(CompiledStep, TakesNoMoreMemoryWhileItIsCompiled) {
  RunConfig c = run_config(DeviceType::cuda, "bf16", Pass::step);
  c.model = known_size("medium");
  plan::Prediction need = plan::predict(c, hopper_gpu(), make_transformer);
  EXPECT_EQ(need.walk.first.peak_allocated, need.walk.steady.peak_allocated);
  EXPECT_LT(need.walk.steady.at_peak_by[size_t(MemoryCategory::gradient)], need.walk.parameters / 4);
}

void expect_predicted_memory(DeviceType device) {
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (Pass pass : {Pass::forward, Pass::forward_backward, Pass::step}) {
      RunConfig c = run_config(device, dtype, pass);
      plan::Prediction need = plan::predict(c, target_of(device), make_transformer);
      CachingAllocator& allocator = allocator_of(device);
      allocator.release_cached();
      int64_t before = allocator.stats().allocated;
      Workload work(c, device, make_transformer);
      for (int i = 0; i < 3; ++i) work.run();
      allocator.reset_peak();
      work.run();
      EXPECT_EQ(allocator.stats().peak_allocated - before, need.walk.steady.peak_allocated) << c.text();
    }
}

// What is kept and what is recomputed changes memory, not results.
TEST(CompiledStep, StaysWithinItsMemoryBudget) {
  RunConfig c = run_config(DeviceType::cpu, "fp32", Pass::step);
  c.batch = 16;  // more activations than fit over the gradients
  c.model.ctx = 128;
  auto run = [&](double budget) {
    c.memory_budget = budget;
    Workload work(c, DeviceType::cpu, make_transformer);
    work.run();
    work.run();
    const compile::Graph& g = work.compilation()->executable->graph();
    return std::tuple(g.total_bytes(), g.nodes.size(), item(work.loss()));
  };
  constexpr double gib = 1024.0 * 1024 * 1024;
  auto [free_bytes, fewest, loss] = run(0);
  c.passes = "dce+loss+fuse+fold+early+plan";
  auto [least, most, same] = run(0);
  c.passes = "all";
  ASSERT_LT(least, free_bytes);
  EXPECT_EQ(loss, same);
  double between = double(least + free_bytes) / 2 / gib;
  auto [bytes, calls, again] = run(between);
  EXPECT_LE(double(bytes), between * gib);
  EXPECT_GT(calls, fewest);
  EXPECT_LT(calls, most);
  EXPECT_EQ(loss, again);
  double too_little = 0.9 * double(least) / gib;
  EXPECT_TRUE(mentions(error_of(ErrorKind::memory, [&] { run(too_little); }), {"--memory-budget", "smaller --batch"}));
}

TEST(CompiledStep, TakesThePredictedMemory) { expect_predicted_memory(DeviceType::cpu); }
TEST(CompiledStepGpu, TakesThePredictedMemory) {
  SINTER_REQUIRE_GPU();
  expect_predicted_memory(DeviceType::cuda);
}

}  // namespace
}  // namespace sinter
