#include "lab/plan_simulate/plan_simulate.h"

#include <cmath>

#include "core/check.h"
#include "lab/divided_model.h"
#include "lab/driver.h"
#include "lab/imagined_ranks.h"
#include "lab/network_record.h"
#include "plan/gpus.h"
#include "plan/layers.h"
#include "plan/prediction.h"
#include "plan/step_time.h"

namespace sinter::lab {

struct SimulatedResult {
  MeasuredRun run;
  std::string machine, source, network, from, shard, strategy;
  int64_t devices = 1, data = 1, tensor = 1, pipeline = 1, context = 1, interleave = 1;
  double slow_device = 1, slow_link = 1;
  double step_ms = 0, low_ms = 0, high_ms = 0, communication_ms = 0, exposed_ms = 0, bubble_ms = 0;
  double tokens_per_s = 0, mfu = 0, peak_bytes = 0;
  bool exact_bytes = false, fits = true;
  double outside = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    MeasuredRun::fields(self.run, f);
    f("status", std::string("ok"));
    f("machine", self.machine);
    f("source", self.source);
    f("network", self.network);
    f("from", self.from);
    f("devices", self.devices);
    f("data", self.data);
    f("tensor", self.tensor);
    f("pipeline", self.pipeline);
    f("context", self.context);
    f("interleave", self.interleave);
    f("shard", self.shard);
    f("strategy", self.strategy);
    f("slow_device", self.slow_device);
    f("slow_link", self.slow_link);
    f("step_ms", self.step_ms);
    f("low_ms", self.low_ms);
    f("high_ms", self.high_ms);
    f("communication_ms", self.communication_ms);
    f("exposed_ms", self.exposed_ms);
    f("bubble_ms", self.bubble_ms);
    f("tokens_per_s", self.tokens_per_s);
    f("mfu", self.mfu);
    f("peak_bytes", self.peak_bytes);
    f("exact_bytes", self.exact_bytes);
    f("fits", self.fits);
    f("outside", self.outside);
  }
};

namespace {

// How far predictions were from what was measured (docs/results/plan.md): of datasheets, before a source's own number;
// of measured machines; and of those beyond what was measured.
struct Range {
  double low, high;
};
Range range_of(const plan::Machine& m, double outside) {
  if (m.source == plan::Machine::datasheet) return {0.74, 1.2};
  return outside > 0.25 ? Range{0.7, 1.3} : Range{0.85, 1.15};
}

struct Asked {
  MeasuredRun run;
  plan::Machine machine;
  plan::Network network;
  plan::Shape shape;
  plan::Layout layout;  // of one of the numbers of devices
  std::string shard, strategy;
  bool graph = true;
};

plan::Layout layout_asked(const PlanSimulateOptions& o, const MeasuredRun& run, int64_t devices, ShardLevel level,
                          const std::string& strategy) {
  plan::Layout l = layout_of(run, level);
  l.tensor = o.tensor.value_or(1), l.pipeline = o.pipeline.value_or(1), l.context = o.context.value_or(1);
  l.interleave = o.interleave.value_or(1);
  check(l.tensor >= 1 && l.pipeline >= 1 && l.context >= 1 && l.interleave >= 1,
        "--tensor, --pipeline, --context and --interleave must be at least 1");
  int64_t each = l.tensor * l.pipeline * l.context;
  check(devices >= 1 && devices <= 100000, "--devices must be between 1 and 100000, not {}", devices);
  check(devices % each == 0, "--devices {}: not a multiple of the {} of --tensor × --pipeline × --context", devices,
        each);
  l.data = devices / each;
  l.strategy = strategy == "flat" || strategy == "naive" ? plan::Layout::flat : plan::Layout::bucketed;
  l.recompute = o.recompute, l.sequence_parallel = o.sequence_parallel;
  plan::check_layout(shape_of(run, o.ungated), l);
  return l;
}

SimulatedResult simulated(const Asked& a, const PlanSimulateOptions& o, const DeviceInfo& on,
                          const MakeModel& make_model, std::string* trace) {
  SimulatedResult r;
  r.run = a.run;
  r.machine = a.machine.name, r.network = a.network.name;
  r.source = a.machine.source == plan::Machine::measured ? "measured" : "datasheet";
  r.from = a.graph ? "graph" : "shapes", r.shard = a.shard, r.strategy = a.strategy;
  const plan::Layout& l = a.layout;
  r.devices = l.devices(), r.data = l.data, r.tensor = l.tensor, r.pipeline = l.pipeline, r.context = l.context;
  r.interleave = l.interleave;
  r.slow_device = o.slow_device, r.slow_link = o.slow_link;
  plan::Conditions conditions{o.slow_device, o.slow_link};
  double seconds = 0;
  plan::Work work;
  plan::Timeline timeline;
  if (a.graph) {
    RunConfig run = a.run;
    if (l.data > 1) {
      run.group = imagined_group(l.data);
      run.data_parallel = {dist::strategy_named(a.strategy), o.shard.bucket_mb};
      run.shard = o.shard.options(shard_level_named(a.shard));
    }
    plan::StepWork step = plan::step_work(run, on, a.network.devices_per_node, make_model);
    plan::StepTime t = plan::time_of(step, a.machine, a.network, conditions);
    seconds = t.seconds, r.outside = t.outside;
    r.communication_ms = 1e3 * t.communication, r.exposed_ms = 1e3 * t.exposed;
    r.peak_bytes = double(plan::predict(run, on, make_model).bytes());
    r.exact_bytes = true;
    work = std::move(step.parts.back()), timeline = std::move(t.timeline);
  } else {
    plan::SimulatedStep t = plan::simulate_layers(a.shape, l, a.run.precision.name, a.machine, a.network, conditions);
    seconds = t.seconds;
    r.communication_ms = 1e3 * t.communication, r.exposed_ms = 1e3 * t.exposed, r.bubble_ms = 1e3 * t.bubble;
    r.peak_bytes = t.memory_bytes;
    work = std::move(t.work), timeline = std::move(t.timeline);
  }
  if (trace) *trace = to_kineto(plan::trace_of(work, timeline, a.machine, r.devices));
  r.step_ms = 1e3 * seconds;
  Range range = range_of(a.machine, r.outside);
  r.low_ms = r.step_ms * range.low, r.high_ms = r.step_ms * range.high;
  double tokens = double(l.data * l.micro_batch * l.micro_batches * a.run.model.ctx);
  r.tokens_per_s = tokens / seconds;
  r.mfu =
      tokens * a.shape.flops_of_token() / (seconds * double(r.devices) * a.machine.product(a.run.precision.name).peak);
  r.fits = r.peak_bytes <= a.machine.memory_bytes;
  return r;
}

}  // namespace

int plan_simulate(const PlanSimulateOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  PlanSimulateOptions o = options;
  check(o.slow_device >= 1 && o.slow_link >= 1,
        "--slow-device and --slow-link say how many times as long it takes: "
        "1 or more");
  check(o.recompute >= 0 && o.recompute <= 1, "--recompute must be between 0 and 1, not {}", o.recompute);
  if (o.machine.empty()) o.machine = "h100";
  plan::Machine machine = plan::machine_named(o.machine);
  if (o.network.empty()) o.network = plan::network_beside(machine);
  plan::Network network = network_or_record(o.network);
  const DeviceInfo& on = machine.target;
  SweepOptions sweep = o.sweep;
  sweep.device = name_of(on.type);
  if (sweep.mode.empty()) sweep.mode = {"compiled"};
  sweep.no_tune = {}, sweep.pass = {"step"};
  std::vector<MeasuredRun> runs = expand(with_defaults(sweep), on);
  if (o.devices.empty()) o.devices = {1};
  std::vector<ShardLevel> levels = o.shard.all_levels();
  if (levels.empty()) levels = {ShardLevel::none};
  if (o.strategy.empty()) o.strategy = {"bucketed"};
  std::vector<Asked> all;
  for (const MeasuredRun& run : runs)
    for (ShardLevel level : levels)
      for (const std::string& strategy : level == ShardLevel::none ? o.strategy : std::vector<std::string>{"bucketed"})
        for (int64_t devices : o.devices) {
          dist::strategy_named(strategy);
          plan::Layout l = layout_asked(o, run, devices, level, strategy);
          bool divided = l.tensor * l.pipeline * l.context > 1 || o.ungated || o.recompute > 0;
          check(o.from.empty() || o.from == "graph" || o.from == "shapes", "--from {}: unknown; choose graph or shapes",
                o.from);
          check(o.from != "graph" || !divided,
                "--from graph: the engine runs data parallelism and sharding of its own model; leave out --from for "
                "tensor, pipeline and context parallelism, --recompute and --ungated");
          all.push_back({run, machine, network, shape_of(run, o.ungated), l, name_of(level), strategy,
                         o.from.empty() ? !divided : o.from == "graph"});
        }
  check(o.trace.empty() || all.size() == 1, "--trace {}: a timeline is of one simulation, but these flags make {}",
        o.trace, all.size());
  Json config = to_json(sweep);
  config.update(Json{{"machine", machine.name}, {"network", network.name}, {"machine_hash", machine.hash}});
  Experiment e{"plan simulate", config};
  Group& group = e.groups.emplace_back();
  group.in_turns = false;
  auto trace = std::make_shared<std::string>();
  for (const Asked& a : all)
    group.cases.push_back(
        simple_case(fmt::format("{}, {} devices, {}", a.run.text(), a.layout.devices(), a.shard), [&, a](Progress&) {
          return Json::array({simulated(a, o, on, make_model, o.trace.empty() ? nullptr : trace.get())});
        }));
  e.files = {{"--trace", o.trace, [trace] { return *trace; }}};
  return run(e, output);
}

}  // namespace sinter::lab
