#include "lab/plan_fit/plan_fit.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "lab/driver.h"
#include "lab/imagined_ranks.h"
#include "lab/network_record.h"
#include "plan/fit.h"
#include "plan/step_time.h"
#include "system/units.h"

namespace sinter::lab {

struct FitResult {
  MeasuredRun run;
  std::string shard;
  int64_t gpus = 1, global_batch = 1;
  double step_ms = 0, tokens_per_s = 0, need_bytes = 0, memory_bytes = 0;
  bool fits = true, recompute = false;
  std::string reason;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    MeasuredRun::fields(self.run, f);
    f("status", std::string(self.fits ? "ok" : "does not fit"));
    f("shard", self.shard);
    f("gpus", self.gpus);
    f("global_batch", self.global_batch);
    f("recompute", self.recompute);
    f("step_ms", self.step_ms);
    f("tokens_per_s", self.tokens_per_s);
    f("need_bytes", self.need_bytes);
    f("memory_bytes", self.memory_bytes);
    f("fits", self.fits);
    f("reason", self.reason);
  }
};

namespace {

class Search {
 public:
  Search(const PlanFitOptions& o, const plan::Machine& machine, const plan::Network& network, double memory,
         const MakeModel& make_model)
      : o_(o), machine_(machine), network_(network), memory_(memory), make_model_(make_model) {}

  // Micro-batches of one precision and level, as long as they fit: twice as large each time.
  Json of(const MeasuredRun& run, ShardLevel level, Progress& progress) {
    Json rows = Json::array();
    int64_t all = *o_.global_batch / o_.gpus;
    bool recompute = false;
    for (int64_t batch = 1; batch <= all; batch *= 2) {
      if (all % batch != 0) break;
      FitResult r = tried(run, level, o_.gpus, batch, all / batch, recompute);
      progress.now(fmt::format("{}, shard {}", r.run.text(), r.shard));
      if (!r.fits && !recompute) {
        FitResult again = tried(run, level, o_.gpus, batch, all / batch, recompute = true);
        if (again.fits) r = again;
      }
      if (r.fits) add_time(r);
      rows.push_back(r);
      if (!r.fits) break;
    }
    return rows;
  }

  // The fewest ranks that hold one sequence each, everything divided; 0: not even a million do.
  int64_t fewest_ranks(const MeasuredRun& run) {
    constexpr int64_t most = 1 << 14;
    int64_t low = o_.gpus, high = std::max<int64_t>(2, 2 * o_.gpus);
    auto holds = [&](int64_t n) { return tried(run, ShardLevel::parameters, n, 1, 1, false).fits; };
    while (high <= most && !holds(high)) low = high, high *= 2;
    if (high > most) return 0;
    while (high - low > 1) {
      int64_t middle = (low + high) / 2;
      (holds(middle) ? high : low) = middle;
    }
    return high;
  }

 private:
  FitResult tried(const MeasuredRun& base, ShardLevel level, int64_t ranks, int64_t batch, int64_t accumulate,
                  bool recompute) const {
    FitResult r;
    r.run = base;
    r.run.batch = batch, r.run.accumulate = accumulate;
    r.shard = name_of(level), r.gpus = ranks, r.global_batch = *o_.global_batch;
    r.memory_bytes = memory_, r.recompute = recompute;
    if (ranks > 1) {
      r.run.group = imagined_group(ranks);
      r.run.shard.level = level;
    }
    if (recompute) r.run.memory_budget = (memory_ - double(plan::typical_outside_bytes())) / double(1 << 30);
    plan::Prediction need = plan::predict(r.run, machine_.target, make_model_);
    r.need_bytes = double(plan::device_need(need));
    r.fits = need.refused.empty() && r.need_bytes <= memory_;
    if (!r.fits)
      r.reason = !need.refused.empty() ? need.refused
                                       : fmt::format("needs {} of {}", bytes_text(r.need_bytes), bytes_text(memory_));
    return r;
  }
  void add_time(FitResult& r) const {
    plan::StepWork step = plan::step_work(r.run, machine_.target, network_.devices_per_node, make_model_);
    plan::StepTime t = plan::time_of(step, machine_, network_);
    r.step_ms = 1e3 * t.seconds;
    r.tokens_per_s = double(r.global_batch * r.run.model.ctx) / t.seconds;
  }

  const PlanFitOptions& o_;
  const plan::Machine& machine_;
  const plan::Network& network_;
  double memory_;
  const MakeModel& make_model_;
};

}  // namespace

int plan_fit(const PlanFitOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  PlanFitOptions o = options;
  plan::Machine machine = plan::machine_named(o.machine);
  check(machine.target.type == DeviceType::cuda, "--machine {}: a CPU; plan fit is about GPUs", o.machine);
  if (o.network.empty()) o.network = plan::network_beside(machine);
  plan::Network network = network_or_record(o.network);
  double memory = o.memory.empty() ? machine.memory_bytes : bytes_named("--memory", o.memory);
  check(o.gpus >= 1 && o.gpus <= 1 << 14, "--gpus must be between 1 and {}, not {}", 1 << 14, o.gpus);
  SweepOptions sweep = o.sweep;
  sweep.device = "cuda", sweep.pass = {"step"}, sweep.batch = {1}, sweep.accumulate = {};
  sweep.mode = {"compiled"}, sweep.memory_budget = {}, sweep.no_tune = {};
  if (sweep.dtype.empty()) {
    for (const char* dtype : {"bf16", "fp16", "fp32"})
      if (machine.products.contains(dtype) && (dtype != std::string("fp16") || !machine.products.contains("bf16")))
        sweep.dtype.push_back(dtype);
  }
  for (const std::string& dtype : sweep.dtype) machine.product(dtype);
  std::vector<MeasuredRun> runs = expand(with_defaults(sweep), machine.target);
  if (!o.global_batch) o.global_batch = 8 * o.gpus;
  check(*o.global_batch >= o.gpus && *o.global_batch % o.gpus == 0,
        "--global-batch {}: not a multiple of --gpus {}; each has as many sequences", *o.global_batch, o.gpus);
  std::vector<ShardLevel> levels;
  for (const std::string& name : o.shard) levels.push_back(shard_level_named(name));
  if (levels.empty() && o.gpus == 1) levels = {ShardLevel::none};
  if (levels.empty()) levels = {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters};
  Json config = to_json(sweep);
  config.update(Json{{"gpus", o.gpus},
                     {"global_batch", *o.global_batch},
                     {"machine", machine.name},
                     {"machine_source", machine.source == plan::Machine::measured ? "measured" : "datasheet"},
                     {"network", network.name},
                     {"memory_bytes", memory}});
  Experiment e{"plan fit", config};
  Group& group = e.groups.emplace_back();
  group.in_turns = false;
  auto search = std::make_shared<Search>(o, machine, network, memory, make_model);
  for (const MeasuredRun& run : runs)
    for (ShardLevel level : levels)
      group.cases.push_back(simple_case(fmt::format("{}, shard {}", run.text(), name_of(level)),
                                        [=](Progress& p) { return search->of(run, level, p); }));
  // If nothing fits: how many would.
  e.finish = [&, search](Json& record) {
    const Json& results = record.at("results");
    if (std::any_of(results.begin(), results.end(), [](const Json& r) { return r.at("fits").get<bool>(); })) return;
    if (int64_t n = search->fewest_ranks(runs[0])) record["fewest_ranks"] = n;
  };
  e.exit_code = [](const Json& results) {
    return std::any_of(results.begin(), results.end(), [](const Json& r) { return r.at("fits").get<bool>(); })
               ? 0
               : int(ErrorKind::memory);
  };
  return run(e, output);
}

}  // namespace sinter::lab
