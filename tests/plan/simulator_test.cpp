// Lanes in time, with tasks whose durations are known; and the engine's own steps and divided models as tasks.
#include "plan/simulator.h"

#include "dist/group.h"
#include "nn/transformer.h"
#include "plan/calibrate.h"
#include "plan/layers.h"
#include "plan/prediction.h"
#include "plan/published.h"
#include "support/values.h"

namespace sinter::plan {
namespace {

// A byte takes a second, calls cost nothing, and so does the network.
Machine unit_machine() {
  Machine m;
  m.products["fp32"] = {1, 1, 0};
  m.attention = {1, 1, 0};
  m.bandwidth = 1;
  m.memory_bytes = 1e12;
  m.target = machine_named("h100").target;
  return m;
}
Network unit_network() {
  Network n;
  n.device_bandwidth = 1;  // two ranks: an all-gather of 2 bytes takes a second
  return n;
}
Task moves(double seconds, int lane = compile::main_lane, std::vector<int> waits = {}) {
  Task t;
  t.bytes = seconds, t.lane = lane, t.waits = std::move(waits);
  return t;
}
Task gather(double seconds, std::vector<int> waits = {}) {
  Task t = moves(2 * seconds, compile::communication_lane, std::move(waits));
  t.kind = Task::collective, t.operation = CollectiveKind::all_gather, t.ranks = {2, 2};
  return t;
}
Work work_of_tasks(std::vector<Task> tasks) {
  Work w;
  w.dtype = "fp32", w.tasks = std::move(tasks);
  return w;
}

TEST(Simulator, RunsALaneInItsOrder) {
  Timeline t = simulate(work_of_tasks({moves(1), moves(2), moves(3)}), unit_machine(), unit_network());
  EXPECT_NEAR(t.seconds, 6, 1e-9);
  EXPECT_NEAR(t.busy, 6, 1e-9);
  ASSERT_EQ(t.pieces.size(), 3u);
  EXPECT_NEAR(t.pieces[2].begin, 3, 1e-9);
}

TEST(Simulator, SharesTheDeviceAmongLanes) {
  // Both have half of it until the shorter is done.
  Timeline t = simulate(work_of_tasks({moves(3), moves(1, compile::side_lane)}), unit_machine(), unit_network());
  EXPECT_NEAR(t.seconds, 4, 1e-9);
  EXPECT_NEAR(t.pieces[0].end, 2, 1e-9);
}

TEST(Simulator, OverlapsCollectives) {
  Machine m = unit_machine();
  Work w = work_of_tasks({moves(1), gather(3, {0}), moves(2), moves(1, compile::main_lane, {1})});
  Timeline t = simulate(w, m, unit_network());
  EXPECT_NEAR(t.seconds, 1 + 3 + 1, 1e-9);
  EXPECT_NEAR(t.communication, 3, 1e-9);
  EXPECT_NEAR(t.exposed, 1, 1e-9);
  m.overlap = 0.5;  // what runs beside it takes twice as long
  EXPECT_NEAR(simulate(w, m, unit_network()).exposed, 0, 1e-9);
  EXPECT_NEAR(simulate(w, m, unit_network()).seconds, 1 + 3.5 + 1, 1e-9);
}

TEST(Simulator, WaitsForTheHost) {
  Machine m = unit_machine();
  m.host_call_s = 2;
  Work w = work_of_tasks({moves(1), moves(1), moves(5), moves(1)});
  EXPECT_NEAR(simulate(w, m, unit_network()).seconds, 8, 1e-9) << "replayed as one";
  w.one_by_one = true;
  EXPECT_NEAR(simulate(w, m, unit_network()).seconds, 6 + 5 + 1, 1e-9);
}

TEST(Simulator, ASlowDeviceAndASlowLinkCostWhatTheyMust) {
  Work w = work_of_tasks({moves(2), gather(3, {0})});
  EXPECT_NEAR(simulate(w, unit_machine(), unit_network(), {1.5, 1}).seconds, 3 + 3, 1e-9);
  EXPECT_NEAR(simulate(w, unit_machine(), unit_network(), {1, 2}).seconds, 2 + 6, 1e-9);
}

RunConfig small_run(Mode mode, const char* dtype = "bf16") {
  RunConfig c;
  c.model = known_size("small");
  c.model.attention.kind = AttentionKind::flash;
  c.precision = precision_named(dtype);
  c.mode = mode;
  return c;
}

TEST(StepTime, CountsWhatTheWalkCounts) {
  DeviceInfo on = machine_named("h100").target;
  for (Mode mode : {Mode::eager, Mode::compiled})
    for (int64_t accumulate : {1, 2, 5}) {
      RunConfig c = small_run(mode);
      c.accumulate = accumulate;
      StepWork w = step_work(c, on, 8, make_transformer);
      double flops = 0;
      for (size_t i = 0; i < w.parts.size(); ++i) flops += double(w.times[i]) * w.parts[i].products();
      EXPECT_NEAR(flops / predict(c, on, make_transformer).flops_executed, 1, 1e-3) << name_of(mode) << accumulate;
    }
}

TEST(StepTime, RanksSendTheirGradients) {
  auto eight = dist::make_imagined_group(8);
  DeviceInfo on = machine_named("h100").target;
  for (Mode mode : {Mode::eager, Mode::compiled})
    for (ShardLevel level : {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
      RunConfig c = small_run(mode);
      c.group = eight.get();
      c.shard.level = level;
      StepWork w = step_work(c, on, 8, make_transformer);
      double wire = 0;
      for (const Task& t : w.parts[0].tasks)
        if (t.kind == Task::collective) wire += t.bytes * 7 / 8 * (t.operation == CollectiveKind::all_reduce ? 2 : 1);
      EXPECT_NEAR(wire / predict(c, on, make_transformer).wire_bytes, 1, 1e-6) << name_of(mode) << name_of(level);
      Machine m = machine_named("h100");
      Network n = network_named("h100");
      StepTime t = time_of(w, m, n);
      EXPECT_GT(t.communication, 0);
      EXPECT_LE(t.exposed, t.communication + 1e-9);
      EXPECT_GE(t.seconds, t.communication - 1e-9);
      EXPECT_GT(time_of(w, m, n, {1.3, 1}).seconds, t.seconds) << "a straggler";
      EXPECT_GE(time_of(w, m, n, {1, 3}).seconds, t.seconds) << "a slow link";
    }
}

Shape shape_of_size(const std::string& size) {
  const ModelConfig& m = known_size(size);
  return {m.d_model, m.d_ff, m.layers, m.heads, m.key_value_heads(), 10000, 256};
}

TEST(Layers, HaveTheModelsParametersAndFlops) {
  for (const char* size : {"small", "xl", "2.7B"}) {
    RunConfig c = small_run(Mode::eager);
    c.model = known_size(size);
    c.model.attention.kind = AttentionKind::flash;
    Prediction p = predict(c, machine_named("h100").target, make_transformer);
    Shape s = shape_of_size(size);
    EXPECT_EQ(s.parameters(), double(p.walk.parameters)) << size;
    EXPECT_NEAR(4 * 256 * s.flops_of_token() / p.flops, 1, 1e-6) << size;
  }
}

TEST(Layers, DivideWork) {
  Machine m = machine_named("h100");
  Network n = network_named("h100");
  Shape s = shape_of_size("xl");
  s.ctx = 1024;
  Layout one;
  one.micro_batch = 4;
  SimulatedStep alone = simulate_layers(s, one, "bf16", m, n);
  auto flops = [](const SimulatedStep& r) { return r.work.products(); };
  for (int64_t tensor : {5}) {
    Layout l = one;
    l.tensor = tensor;
    SimulatedStep r = simulate_layers(s, l, "bf16", m, n);
    EXPECT_NEAR(flops(r) * double(tensor) / flops(alone), 1, 1e-6);
    EXPECT_LT(r.seconds, alone.seconds);
    EXPECT_GT(r.communication, 0);
    EXPECT_LT(r.memory_bytes, alone.memory_bytes);
  }
  double last = 0;
  for (int64_t micro_batches : {1, 2, 4, 16}) {  // the bubble's part shrinks
    Layout l = one;
    l.pipeline = 4, l.micro_batches = micro_batches;
    SimulatedStep r = simulate_layers(s, l, "bf16", m, n);
    double rate = double(micro_batches) / r.seconds;
    EXPECT_GT(rate, last);
    last = rate;
    l.interleave = 4;
    if (micro_batches == 4) {
      EXPECT_LT(simulate_layers(s, l, "bf16", m, n).bubble, r.bubble);
    }
  }
  Layout data = one;
  data.data = 64;
  for (Layout::Shard shard : {Layout::none, Layout::optimizer, Layout::gradients, Layout::parameters}) {
    data.shard = shard;
    SimulatedStep r = simulate_layers(s, data, "bf16", m, n);
    EXPECT_GE(r.seconds, 0.95 * alone.seconds) << "the update alone is divided";
    EXPECT_GT(simulate_layers(s, data, "bf16", m, n, {1.5, 1}).seconds, r.seconds);
  }
  Layout again = one;
  again.recompute = 1;
  EXPECT_GT(simulate_layers(s, again, "bf16", m, n).seconds, alone.seconds);
  EXPECT_LT(simulate_layers(s, again, "bf16", m, n).memory_bytes, alone.memory_bytes);
  Layout odd = one;
  odd.tensor = 3;
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { simulate_layers(s, odd, "bf16", m, n); }), {"heads 25", "3"}));
}

TEST(Published, ArePredictedWithinTheirBounds) {
  double sum = 0, naive = 0;
  int counted = 0;
  for (const Compared& c : compare_published(read_published(SINTER_SOURCE_DIR "/bench/published_runs.json"))) {
    if (!c.run.left_out.empty()) continue;
    EXPECT_LT(std::abs(c.error()), 0.3) << c.run.id;
    sum += std::abs(c.error()), naive += std::abs(c.naive_error()), ++counted;
  }
  EXPECT_GT(counted, 40);
  EXPECT_LT(sum / counted, 0.12);
  EXPECT_LT(sum, naive) << "better than a constant part of the peak";
}

TEST(Calibrate, FindsTheRatesThatMadeTheSteps) {
  Machine truth = machine_named("h100");
  truth.products["bf16"] = {9.89e14, 0.6, 200};
  truth.bandwidth = 2e12, truth.call_s = 4e-6;
  Network n = network_named("h100");
  std::vector<MeasuredStep> steps;
  for (const char* size : {"small", "medium"})
    for (int64_t batch : {1, 4, 16}) {
      RunConfig c = small_run(Mode::compiled);
      c.model = known_size(size);
      c.model.attention.kind = AttentionKind::flash;
      c.batch = batch;
      MeasuredStep s{step_work(c, truth.target, 8, make_transformer)};
      s.seconds = time_of(s.work, truth, n).seconds;
      steps.push_back(std::move(s));
    }
  Machine start = machine_named("h100");
  EXPECT_GT(mean_error(start, steps, n), 0.05);
  Machine found = calibrated(start, steps, n);
  EXPECT_LT(mean_error(found, steps, n), 0.01);
  EXPECT_EQ(found.source, Machine::measured);
  // And another step, which it has not seen.
  RunConfig c = small_run(Mode::compiled);
  c.batch = 8;
  StepWork other = step_work(c, truth.target, 8, make_transformer);
  EXPECT_NEAR(time_of(other, found, n).seconds / time_of(other, truth, n).seconds, 1, 0.02);
  EXPECT_LT(time_of(other, found, n).outside, 0.5);
}

}  // namespace
}  // namespace sinter::plan
