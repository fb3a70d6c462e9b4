// Collectives as ops, eager and compiled, with a group that only notes what it is asked for.
#include <gtest/gtest.h>

#include "compile/lane_order.h"
#include "compile/passes.h"
#include "dist/data_parallel.h"
#include "dist/group.h"
#include "nn/transformer.h"
#include "ops/context.h"
#include "ops/ops.h"
#include "plan/gpus.h"
#include "support/graph_checks.h"
#include "train/workload.h"

namespace sinter {
namespace {

class NotingGroup : public ProcessGroup {
 public:
  explicit NotingGroup(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  const char* name() const override { return "noting"; }
  void run(const Collective& what, const void*, void*, void*) override { made.push_back(what); }
  std::vector<Collective> made;

 private:
  int ranks_;
};

ModelConfig little() {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 3, c.heads = 4, c.kv_heads = 4, c.vocab = 61, c.ctx = 12;
  return c;
}

TrainerOptions options_with(ProcessGroup* group, dist::Strategy strategy, double bucket_mb) {
  TrainerOptions o;
  o.group = group;
  o.data_parallel = {strategy, bucket_mb};
  return o;
}

struct Passed {
  compile::Graph graph;
  std::map<std::string, compile::Report> reports;
};
Passed compiled_graph(ProcessGroup* group, double bucket_mb) {
  Trainer t(little(), options_with(group, dist::Strategy::bucketed, bucket_mb), make_transformer);
  Passed p{t.trace(Pass::step, random_batch(3, 12, 61, 1, DeviceType::cpu)), {}};
  for (const compile::Pass& pass : compile::all_passes()) p.reports[pass.name] = pass.run(p.graph, {});
  compile::order_lanes(p.graph);
  return p;
}
Passed sharded_graph(ProcessGroup& group, ShardLevel level, const char* dtype, bool keeps = false) {
  TrainerOptions o;
  o.group = &group;
  o.device = DeviceType::meta;
  o.precision = precision_named(dtype);
  o.shard = {.level = level, .reshard_after_forward = !keeps};
  Trainer t(little(), o, make_transformer);
  Passed p{t.trace(Pass::step, random_batch(3, 12, 61, 1, DeviceType::meta)), {}};
  for (const compile::Pass& pass : compile::all_passes()) p.reports[pass.name] = pass.run(p.graph, {});
  compile::order_lanes(p.graph);
  return p;
}

int64_t count(const compile::Graph& g, OpKind kind) {
  return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const auto& n) { return n.op->kind == kind; });
}

TEST(CollectiveNodes, OfOneRankAreDroppedAndUpdatesStayFolded) {
  NotingGroup one(1);
  Passed alone = compiled_graph(&one, 0.01), none = compiled_graph(nullptr, 0.01);
  EXPECT_EQ(count(alone.graph, OpKind::communication), 0);
  EXPECT_GT(count(alone.graph, OpKind::product_update), 0);
  EXPECT_EQ(count(alone.graph, OpKind::product_update), count(none.graph, OpKind::product_update));
  EXPECT_EQ(alone.graph.nodes.size(), none.graph.nodes.size());
  EXPECT_EQ(alone.graph.total_bytes(), none.graph.total_bytes());
}

// Its share of the optimizer's state is all of it.
TEST(CollectiveNodes, OfOneRankAreDroppedWhenShardedToo) {
  std::unique_ptr<ProcessGroup> one = dist::make_imagined_group(1);
  EXPECT_EQ(count(sharded_graph(*one, ShardLevel::optimizer, "fp32").graph, OpKind::communication), 0);
  EXPECT_GT(count(sharded_graph(*one, ShardLevel::optimizer, "fp32").graph, OpKind::product_update), 0);
}

TEST(CollectiveNodes, HaveALaneAndUpdatesBeginAsBucketsArrive) {
  NotingGroup two(2);
  Passed p = compiled_graph(&two, 0.01);
  const compile::Graph& g = p.graph;
  EXPECT_EQ(count(g, OpKind::product_update), 0) << "a collective stands between gradient and update";
  bool said = false;
  for (const std::string& line : p.reports["fold"].lines)
    said = said || line.find("all_reduce stands between") != std::string::npos;
  EXPECT_TRUE(said);
  ASSERT_GT(count(g, OpKind::communication), 4);
  int first_update = -1, last_backward = -1;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    EXPECT_EQ(g.nodes[i].is_communication(), g.nodes[i].lane == compile::communication_lane);
    if (g.nodes[i].op->kind == OpKind::update && first_update < 0) first_update = int(i);
    if (g.nodes[i].op->is_product()) last_backward = int(i);
  }
  EXPECT_LT(first_update, last_backward);
  expect_ordered_lanes(g);
  // Every update waits for the collectives of its range, and for no later one.
  for (const auto& n : g.nodes) {
    if (n.op->kind != OpKind::update) continue;
    int collectives = 0;
    for (const auto& c : g.nodes)
      collectives +=
          c.is_communication() && c.in[0].buffer == n.in[1].buffer &&
          compile::span_of(c.call.in[0], c.in[0].offset).overlaps(compile::span_of(n.call.in[1], n.in[1].offset));
    EXPECT_EQ(collectives, 1) << "a part of an update lies in one bucket";
  }
}

// A norm's backward pass and the cast of what it gives are one call also where the norm's gradient, which is ready
// between them, is sent at once: all strategies and levels have the same bits.
TEST(CollectiveNodes, DoNotStandBetweenCallsThatAreFused) {
  MetaTarget gpu(plan::card_named("H200-141").info());
  std::unique_ptr<ProcessGroup> two = dist::make_imagined_group(2);
  auto graph_of = [&](dist::Strategy strategy, ShardLevel level) {
    TrainerOptions o = options_with(two.get(), strategy, 0.01);
    o.device = DeviceType::meta, o.precision = precision_named("bf16"), o.shard.level = level;
    Trainer t(little(), o, make_transformer);
    compile::Graph g = t.trace(Pass::step, random_batch(3, 12, 61, 1, DeviceType::meta));
    for (const compile::Pass& pass : compile::all_passes()) pass.run(g, {});
    return g;
  };
  int64_t fused = count(graph_of(dist::Strategy::naive, ShardLevel::none), OpKind::fused);
  ASSERT_GT(fused, 0);
  for (ShardLevel level : {ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters})
    EXPECT_EQ(count(graph_of(dist::Strategy::bucketed, level), OpKind::fused), fused) << name_of(level);
  compile::Graph g = graph_of(dist::Strategy::overlap, ShardLevel::none);
  EXPECT_EQ(count(g, OpKind::fused), fused);
  // Nothing adds to a gradient that has been sent.
  for (size_t c = 0; c < g.nodes.size(); ++c) {
    if (!g.nodes[c].is_communication()) continue;
    auto sent = compile::span_of(g.nodes[c].call.in[0], g.nodes[c].in[0].offset);
    bool written = false;
    for (size_t i = 0; i < g.nodes.size(); ++i)
      g.nodes[i].for_each_access([&](const auto& at, const TensorRef& t, bool, bool writes) {
        if (i == c || !writes || at.buffer != g.nodes[c].in[0].buffer) return;
        if (!compile::span_of(t, at.offset).overlaps(sent)) return;
        EXPECT_LT(i, c) << g.nodes[i].op->name << " after " << g.nodes[c].op->name;
        written = true;
      });
    EXPECT_TRUE(written);
  }
}

// A gathering is two others ahead of its first use, so that at most three hold memory; the backward pass gathers again
// what the forward pass gave back, but for the unit it begins with.
TEST(CollectiveNodes, ParametersAreGatheredTwoAhead) {
  for (const char* dtype : {"fp32", "bf16"})
    for (bool keeps : {false, true}) {
      std::unique_ptr<ProcessGroup> four = dist::make_imagined_group(4);
      Passed p = sharded_graph(*four, ShardLevel::parameters, dtype, keeps);
      const compile::Graph& g = p.graph;
      expect_ordered_lanes(g);
      std::vector<size_t> gathered, first_use, last_use;
      for (size_t i = 0; i < g.nodes.size(); ++i) {
        if (g.nodes[i].op->name != std::string("all_gather")) continue;
        gathered.push_back(i);
        int buffer = g.nodes[i].in[1].buffer;
        size_t use = i;
        auto reads = [&](const compile::Node& n) {
          return std::any_of(n.in.begin(), n.in.end(), [&](const auto& o) { return o.buffer == buffer; });
        };
        while (++use < g.nodes.size() && !reads(g.nodes[use])) {
        }
        ASSERT_LT(use, g.nodes.size()) << "nobody reads it";
        first_use.push_back(use);
        last_use.push_back(use);
        while (++use < g.nodes.size())
          if (reads(g.nodes[use])) last_use.back() = use;
      }
      size_t units = 5;  // embedding, layers, head
      ASSERT_EQ(gathered.size(), keeps ? units : units + units - 2)
          << dtype << ": the backward pass reads no embedding";
      for (size_t k = 2; k < gathered.size(); ++k) {
        EXPECT_LT(gathered[k], first_use[k - 1]) << "it runs beside another's use";
        // Besides the one that is read there are at most two: the fourth waits for the first to be read for the last
        // time.
        if (!keeps && k >= 3) {
          EXPECT_GT(gathered[k], last_use[k - 3]) << dtype << ": four are held at once";
        }
      }
      EXPECT_EQ(p.reports["gathers"].lines.size(), gathered.size()) << "each says where it went";
    }
}

// As a gradient arrives, its share is reduced, updated and, where parameters are whole, sent to everybody, while the
// backward pass goes on.
TEST(CollectiveNodes, SharesAreUpdatedAsTheyArrive) {
  for (ShardLevel level : {ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
    std::unique_ptr<ProcessGroup> two = dist::make_imagined_group(2);
    const compile::Graph g = sharded_graph(*two, level, "bf16").graph;
    expect_ordered_lanes(g);
    size_t last_product = 0, scattered = 0, updated_early = 0, sent_early = 0;
    for (size_t i = 0; i < g.nodes.size(); ++i)
      if (g.nodes[i].op->is_product()) last_product = i;
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const compile::Node& n = g.nodes[i];
      scattered += n.op->name == std::string("reduce_scatter");
      updated_early += n.op->kind == OpKind::update && i < last_product;
      sent_early += n.op->name == std::string("all_gather") && !g.buffers[size_t(n.in[1].buffer)].is_planned() &&
                    i < last_product;
    }
    EXPECT_EQ(scattered, 5u);
    EXPECT_GT(updated_early, 3u) << name_of(level);
    EXPECT_EQ(sent_early > 0, level != ShardLevel::parameters) << name_of(level);
    // A gradient that the step uses up lies among its own buffers.
    bool stored =
        std::any_of(g.buffers.begin(), g.buffers.end(), [](const compile::Buffer& b) { return !b.unread.empty(); });
    EXPECT_EQ(stored, level == ShardLevel::optimizer) << name_of(level);
  }
}

// Order and sizes are what all ranks agree on.
TEST(DataParallelBuckets, AreReducedInTheirOrderAndCoverEverything) {
  for (double mb : {0.001, 0.01, 0.05, 25.0}) {
    NotingGroup two(2);
    Trainer t(little(), options_with(&two, dist::Strategy::bucketed, mb), make_transformer);
    const auto& buckets = dynamic_cast<const dist::DataParallel&>(*t.parallel()).buckets();
    EXPECT_EQ(buckets.front().begin, 0);
    EXPECT_EQ(buckets.back().end, t.parameters().trainable_size());
    for (size_t i = 1; i < buckets.size(); ++i) EXPECT_EQ(buckets[i].begin, buckets[i - 1].end);
    two.made.clear();
    t.step(random_batch(3, 12, 61, 1, DeviceType::cpu), 1e-3);
    ASSERT_EQ(two.made.size(), buckets.size() + 1);
    for (size_t i = 0; i < buckets.size(); ++i) {
      EXPECT_EQ(two.made[i].elements, buckets[i].end - buckets[i].begin);
      EXPECT_EQ(two.made[i].reduce, ReduceKind::average);
    }
    EXPECT_EQ(two.made.back().elements, 1) << "the loss";
  }
}

TEST(DataParallelBuckets, ATensorLargerThanABucketHasItsOwn) {
  NotingGroup two(2);
  Trainer t(little(), options_with(&two, dist::Strategy::bucketed, 0.004), make_transformer);  // 1024 elements
  for (const auto& leaf : t.parameters().trainable_leaves()) {
    if (leaf.end - leaf.begin < 1048) continue;
    bool own = false;
    for (const auto& b : dynamic_cast<const dist::DataParallel&>(*t.parallel()).buckets())
      own = own || (b.begin == leaf.begin);
    EXPECT_TRUE(own) << leaf.leaf->name;
  }
}

TEST(DataParallelBuckets, MicroBatchesBeforeTheLastAreNotReduced) {
  NotingGroup two(2);
  for (bool compiled : {false, true}) {
    TrainerOptions o = options_with(&two, dist::Strategy::flat, 25);
    if (compiled) o.compiled = compile::CompileOptions{};
    Trainer t(little(), o, make_transformer);
    std::vector<Batch> batches;
    for (uint64_t i = 0; i < 3; ++i) batches.push_back(random_batch(2, 12, 61, i, DeviceType::cpu));
    for (Pass pass : {Pass::step, Pass::forward_backward}) {
      two.made.clear();
      t.run(pass, batches);
      synchronize(DeviceType::cpu);
      ASSERT_EQ(two.made.size(), 2u) << name_of(pass);  // gradients and the loss, once
    }
  }
}

TEST(Collective, CostsWhatARingSends) {
  NotingGroup four(4);
  Tensor x = zeros({1000}, DType::f32, DeviceType::meta), share = zeros({250}, DType::f32, DeviceType::meta);
  class Sum : public Interceptor {
   public:
    void called(const OpCall& c, TensorPtrs, const Outputs& o) override {
      if (c.op.cost) wire += c.op.cost(c, o).wire_bytes;
    }
    double wire = 0;
  } sum;
  Listening on(sum);
  all_reduce(x, four);
  EXPECT_EQ(sum.wire, 2 * 0.75 * 4000);
  reduce_scatter(x, share, four);
  EXPECT_EQ(sum.wire, 3 * 0.75 * 4000);
  all_gather(share, x, four);
  EXPECT_EQ(sum.wire, 4 * 0.75 * 4000);
  EXPECT_THROW(reduce_scatter(x, x, four), Error);
  EXPECT_THROW(broadcast(x, four, 4), Error);
  EXPECT_THROW(all_reduce(zeros({3}, DType::i64, DeviceType::meta), four), Error);
}

// The CPU has no counts: numbers of the host go round also among ranks that share a GPU.
TEST(Collective, OfTheHostNeedsNoTurnOnTheGpu) {
  class OnOneGpu : public NotingGroup {
   public:
    using NotingGroup::NotingGroup;
    bool takes_turns(DeviceType device) const override { return device == DeviceType::cuda; }
  } two(2);
  Tensor share = zeros({2}, DType::f32, DeviceType::cpu), x = zeros({4}, DType::f32, DeviceType::cpu);
  all_gather(share, x, two);
  join_communication(DeviceType::cpu);
  synchronize(DeviceType::cpu);
  ASSERT_EQ(two.made.size(), 1u);
  EXPECT_EQ(two.made[0].kind, CollectiveKind::all_gather);
}

TEST(DataParallelOptions, BadOnesAreRefused) {
  EXPECT_THROW(dist::strategy_named("fast"), Error);
  NotingGroup two(2);
  for (double mb : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(Trainer(little(), options_with(&two, dist::Strategy::bucketed, mb), make_transformer), Error);
}

}  // namespace
}  // namespace sinter
