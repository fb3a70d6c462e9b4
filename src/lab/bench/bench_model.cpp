#include "lab/bench/bench_model.h"

#include <cmath>

#include "lab/machine.h"
#include "lab/record.h"
#include "lab/tuning.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string outcome_text(const Json& r) {
  if (r["status"] == "oom") return "OOM: " + r["reason"].get<std::string>();
  std::string tuned = tuning_text(r);
  return fmt::format("{} ms{}{}", significant(r["median_ms"].get<double>(), 4),
                     r["status"] == "suspect" ? " (suspect)" : "", tuned.empty() ? "" : "; " + tuned);
}

// Configurations that differ in dtype, attention, mode or its passes alone are measured in turns, so that drift of the machine meets all of
// them.
bool comparable(const MeasuredRun& a, const MeasuredRun& b) {
  Json x = to_json(a), y = to_json(b);
  for (const char* varied : {"dtype", "attention", "mode", "passes"}) x.erase(varied), y.erase(varied);
  return x == y;
}

struct Variant {
  MeasuredRun config;
  plan::Prediction need;
  std::optional<Measurement> measurement;
  std::optional<Json> oom;
};

// False if interrupted.
bool run_turn(Variant& v, int64_t timed, const MakeModel& make_model, Progress& progress) {
  try {
    std::optional<Measurement> m = measure(v.config, timed, make_model, progress);
    if (!m) return false;
    if (v.measurement) v.measurement->append(*m);
    else v.measurement = m;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    allocator_of(v.config.device).release_cached();
    v.oom = oom_result(v.config, v.need, e.what(), backend_of(v.config.device).free_bytes());
  }
  return true;
}

void run_here(const std::vector<MeasuredRun>& runs, const MakeModel& make_model, Json& results, Progress& progress) {
  plan::Peaks peaks(runs[0].device);
  for (size_t begin = 0, end; begin < runs.size(); begin = end) {
    std::vector<Variant> group;
    for (end = begin; end < runs.size() && comparable(runs[begin], runs[end]); ++end) {
      Variant v{runs[end], plan::predict(runs[end], target_of(runs[end].device), make_model), {}, {}};
      if (plan::Fit fit = plan::fit_of(v.need, backend_of(v.config.device).free_bytes()); !fit.fits)
        v.oom = oom_result(v.config, v.need, fit.reason, fit.free_bytes);
      else if (!fit.warning.empty()) progress.done(fmt::format("warning: {}: {}", v.config.text(), fit.warning));
      group.push_back(std::move(v));
    }
    for (int64_t passes : turns_of(runs[begin].steps, group.size()))
      for (Variant& v : group)
        if (!v.oom && !run_turn(v, passes, make_model, progress)) return;
    for (Variant& v : group) {
      results.push_back(v.oom ? *v.oom : result_of(v.config, v.need, *v.measurement, peaks));
      progress.done(fmt::format("{}: {}", v.config.text(), outcome_text(results.back())));
    }
  }
}

void add_startup(Json& result, Startup& startup) {
  if (result["status"] == "oom") return;
  std::vector<double> all = result["trajectory_ms"];
  std::vector<double> later(all.begin() + 1, all.end());
  startup.add("model, parameters, batch (first allocations)", result["setup_ms"]);
  if (!later.empty()) startup.add("first pass beyond a later one", all[0] - statistics_of(later).median);
  result["startup_ms"] = startup.stages();
}

int exit_code_of(const Json& results) {
  bool all_oom = !results.empty(), fault = false;
  for (const Json& r : results) {
    all_oom = all_oom && r["status"] == "oom";
    fault = fault || (r.contains("loss") && (!r["loss"].is_number() || !std::isfinite(r["loss"].get<double>())));
  }
  return all_oom ? int(ErrorKind::memory) : fault ? int(ErrorKind::numeric) : 0;
}

}  // namespace

int bench_model(const BenchOptions& options, OutputOptions output, const MakeModel& make_model) {
  check_output(output);
  check(!options.dry_run || output.plot.empty(), "--plot {}: a dry run has nothing to plot", output.plot);
  SweepOptions sweep = options.sweep;
  set_up_process(sweep);
  std::optional<Startup> startup;
  if (options.itemise) startup.emplace(sweep.device.value_or("cpu"));
  sweep = with_defaults(sweep);
  std::vector<MeasuredRun> runs = expand(sweep);

  Json config = to_json(sweep);
  if (options.published) config["published"] = true;
  if (options.dry_run) config["dry_run"] = true;
  Json record = new_record("bench model", machine_block(runs[0].device), config);
  Progress progress(options.child);
  catch_interrupts();
  try {
    if (options.dry_run) {
      for (const MeasuredRun& c : runs) {
        if (interrupted()) break;
        plan::Prediction need = plan::predict(c, target_of(c.device), make_model);
        record["results"].push_back(planned_result(c, need, plan::fit_of(need, backend_of(c.device).free_bytes())));
      }
    } else if (!options.peers.empty()) {
      bench_against_peers(options, runs, record, progress);
    } else if (sweep.warmup.size() > 1) {
      bench_warmups(options, runs, record, progress);
    } else {
      run_here(runs, make_model, record["results"], progress);
      if (startup && !record["results"].empty()) add_startup(record["results"][0], *startup);
    }
  } catch (const Error&) {
    if (!record["results"].empty()) write_output(output, record);  // what was finished is not lost
    throw;
  }
  if (record["results"].empty()) output.plot.clear();  // interrupted too early to have something to see
  write_output(output, record);
  if (interrupted()) {
    progress.done(interrupted_text(record["results"].size(), runs.size()));
    return interrupted_exit_code;
  }
  return options.dry_run ? 0 : exit_code_of(record["results"]);
}

}  // namespace sinter::lab
