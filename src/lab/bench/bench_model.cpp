#include "lab/bench/bench_model.h"

#include "core/check.h"
#include "lab/record.h"
#include "lab/tuning.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// Configurations that differ in dtype, attention, mode or its passes alone are compared.
bool comparable(const MeasuredRun& a, const MeasuredRun& b) {
  Json x = config_of(a), y = config_of(b);
  for (const char* varied : {"dtype", "attention", "mode", "passes"}) x.erase(varied), y.erase(varied);
  return x == y;
}

class ModelCase : public MeasuredCase<Measurement> {
 public:
  ModelCase(const MeasuredRun& config, std::shared_ptr<plan::Peaks> peaks, const MakeModel& make_model)
      : MeasuredCase(config.steps), config_(config), peaks_(std::move(peaks)), make_model_(make_model) {}

  std::string text() const override { return config_.text(); }
  plan::Fit fit() override {
    need_ = plan::predict(config_, target_of(config_.device), make_model_);
    return plan::fit_of(need_, allocator_of(config_.device).free_bytes());
  }
  Json does_not_fit(const std::string& reason, int64_t free_bytes) override {
    return oom_result(config_, need_, reason, free_bytes);
  }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return Case::outcome(r);
    std::string tuned = tuning_text(r);
    return fmt::format("{} ms{}{}", significant(r["median_ms"].get<double>(), 4),
                       r["status"] == "suspect" ? " (suspect)" : "", tuned.empty() ? "" : "; " + tuned);
  }

 private:
  std::optional<Measurement> measure(int64_t timed, Progress& progress) override {
    return lab::measure(config_, timed, make_model_, progress);
  }
  Json result(const Measurement& m) override { return result_of(config_, need_, m, *peaks_); }
  std::string doubt_of(const Measurement& m) override {
    return lab::doubt_of(need_, m, peaks_->product(config_.precision.name));
  }
  void confirm_peaks() override { peaks_->confirm_product(config_.precision.name); }

  MeasuredRun config_;
  std::shared_ptr<plan::Peaks> peaks_;
  const MakeModel& make_model_;
  plan::Prediction need_;
};

// What would be needed; nothing is run.
Json planned(const MeasuredRun& c, const MakeModel& make_model) {
  plan::Prediction need = plan::predict(c, target_of(c.device), make_model);
  plan::Fit fit = plan::fit_of(need, allocator_of(c.device).free_bytes());
  BenchResult r = oom_result(c, need, fit.reason, fit.free_bytes);
  if (fit.fits) r.status = "ok";
  return Json::array({r});
}

void add_startup(Json& record, Startup& startup) {
  if (record["results"].empty() || record["results"][0]["status"] == "oom") return;
  Json& result = record["results"][0];
  std::vector<double> all = result["trajectory_ms"];
  std::vector<double> later(all.begin() + 1, all.end());
  startup.add("model, parameters, batch (first allocations)", result["setup_ms"]);
  if (!later.empty()) startup.add("first pass beyond a later one", all[0] - statistics_of(later).median);
  result["startup_ms"] = startup.stages();
}

// Before children run, so that they find them in the cache.
void measure_peaks(const std::vector<MeasuredRun>& runs, Progress& progress) {
  progress.now("measuring this machine's peaks");
  plan::Peaks peaks(runs[0].device);
  for (const MeasuredRun& c : runs) peaks.product(c.precision.name);
  peaks.copy();
}

void add_ablation(SweepOptions& sweep) {
  check(sweep.mode.empty() && sweep.passes.empty(), "--ablate: it chooses --mode and --passes itself; leave them out");
  sweep.mode = {"eager", "compiled"};
  sweep.passes = {"none"};
  std::string on;
  for (const std::string& name : compile::pass_names()) sweep.passes.push_back(on += (on.empty() ? "" : "+") + name);
}

}  // namespace

int bench_model(const BenchOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  check_output(output);  // before python is asked whether it has torch
  check(!options.dry_run || output.plot.empty(), "--plot {}: a dry run has nothing to plot", output.plot);
  SweepOptions sweep = options.sweep;
  if (options.ablate) add_ablation(sweep);
  set_up_process(sweep);
  std::optional<Startup> startup;
  Json stages;  // of a child's start
  if (options.itemise) startup.emplace(sweep.device.value_or("cpu"));
  sweep = with_defaults(sweep);
  std::vector<MeasuredRun> runs = expand(sweep);

  Experiment e{"bench model", to_json(sweep), runs[0].device};
  e.silent = options.child;
  if (options.published) e.config["published"] = true;
  if (options.dry_run) e.config["dry_run"] = true;
  if (options.dry_run) {
    for (const MeasuredRun& c : runs)
      e.groups.emplace_back().cases.push_back(
          simple_case(c.text(), [&c, &make_model](Progress&) { return planned(c, make_model); }));
    e.exit_code = [](const Json&) { return 0; };
  } else if (!options.peers.empty()) {
    e.groups = groups_with_peers(options, runs);
  } else if (sweep.warmup.size() > 1) {
    e.groups = groups_by_warmup(options, runs);
    Group& last = e.groups.emplace_back();  // its result goes to the first row
    last.cases.push_back(simple_case("one-time costs of a fresh process", [&](Progress&) {
      stages = startup_of_fresh_process(options, runs[0]);
      return Json::array();
    }));
    e.finish = [&](Json& record) {
      if (!stages.is_null() && !record["results"].empty()) record["results"][0]["startup_ms"] = stages;
    };
  } else {
    auto peaks = std::make_shared<plan::Peaks>(e.device);
    e.groups = groups_of(runs, comparable,
                         [&](const MeasuredRun& c) { return std::make_unique<ModelCase>(c, peaks, make_model); });
    if (startup) e.finish = [&](Json& record) { add_startup(record, *startup); };
  }
  bool children = !options.peers.empty() || sweep.warmup.size() > 1;
  if (children && !options.dry_run) e.before = [&](Progress& progress) { measure_peaks(runs, progress); };
  return run(e, output);
}

}  // namespace sinter::lab
