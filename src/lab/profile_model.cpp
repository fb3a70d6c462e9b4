#include "lab/profile_model.h"

#include "lab/machine.h"
#include "lab/process.h"
#include "lab/record.h"
#include "lab/units.h"

namespace sinter::lab {
namespace {

Json oom_row(const RunConfig& c, const std::string& reason) {
  Json r = to_json(c);
  r["status"] = "oom";
  r["reason"] = reason;
  return r;
}

// None if interrupted. The trace is handed out, not written: a full disk must not cost the measurement.
std::optional<Json> profile_one(const RunConfig& c, const ProfileOptions& options, Profiler& profiler, Peaks& peaks,
                                const MakeModel& make_model, std::string& trace) {
  Fit fit = fit_of(predict(c, make_model), c);
  if (!fit.fits) return oom_row(c, fit.reason);
  allocator_of(c.device).release_cached();
  Roofline roofline{peaks.product(c.precision.name), peaks.copy()};  // while there is room to measure them
  try {
    Workload work(c, c.device, make_model);
    std::optional<Profile> p = profiler.run(work, c.warmup, c.steps, !options.trace.empty());
    if (!p) return {};
    if (!options.trace.empty()) trace = to_kineto(p->trace);
    return profile_result(c, *p, options.range, roofline);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    return oom_row(c, e.what());
  }
}

std::string outcome(const Json& r) {
  if (r["status"] == "oom") return "OOM: " + r["reason"].get<std::string>();
  return fmt::format("{} ms a pass; recorded {} ms, of which {} ms busy", significant(r["wall_ms"].get<double>(), 4),
                     significant(r["profiled_mean_ms"].get<double>(), 4),
                     significant(r["device_time"]["busy_ms"].get<double>(), 4));
}

}  // namespace

int profile_model(const ProfileOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  check(options.trace.empty() || options.trace.ends_with(".json"), "--trace {}: the name must end in .json",
        options.trace);
  check_output(output, {{"--trace", options.trace}});
  SweepOptions sweep = with_defaults(options.sweep);
  set_threads(sweep);
  check(sweep.warmup.size() == 1, "--warmup: give one number of untimed passes; `bench model` compares several");
  std::vector<RunConfig> runs = expand(sweep);
  check(options.trace.empty() || runs.size() == 1,
        "--trace {}: a trace is of one configuration, but these flags make {}", options.trace, runs.size());

  Json config = to_json(sweep);
  config["top"] = options.top;
  Json record = new_record("profile model", machine_block(runs[0].device), config);
  Progress progress;
  catch_interrupts();
  Profiler profiler(runs[0].device, options.profiler);
  Peaks peaks(runs[0].device);
  std::string trace;
  bool all_oom = true;
  for (const RunConfig& c : runs) {
    progress.now(c.text());
    std::optional<Json> r = profile_one(c, options, profiler, peaks, make_model, trace);
    allocator_of(c.device).release_cached();
    if (!r) break;
    all_oom = all_oom && (*r)["status"] == "oom";
    record["results"].push_back(*r);
    progress.done(fmt::format("{}: {}", c.text(), outcome(*r)));
  }
  if (!record["results"].empty()) {
    OutputOptions out = output;
    if (all_oom) out.plot.clear();
    write_output(out, record);
  }
  if (!trace.empty()) {
    write_file(options.trace, trace);
    progress.done("trace: " + options.trace + " (ui.perfetto.dev, chrome://tracing)");
  }
  if (interrupted()) {
    progress.done(interrupted_text(record["results"].size(), runs.size()));
    return interrupted_exit_code;
  }
  return all_oom ? int(ErrorKind::memory) : 0;
}

}  // namespace sinter::lab
