#include "lab/profile/profile_model.h"

#include "lab/machine.h"
#include "lab/record.h"
#include "lab/tuning.h"
#include "system/files.h"
#include "system/signals.h"
#include "system/units.h"
#include "train/workload.h"

namespace sinter::lab {
namespace {

std::string outcome(const Json& r) {
  if (r["status"] == "oom") return "OOM: " + r["reason"].get<std::string>();
  std::string tuned = tuning_text(r);
  return fmt::format("{} ms a pass; recorded {} ms, of which {} ms busy{}", significant(r["wall_ms"].get<double>(), 4),
                     significant(r["profiled_mean_ms"].get<double>(), 4),
                     significant(r["device_time"]["busy_ms"].get<double>(), 4), tuned.empty() ? "" : "; " + tuned);
}

// One configuration to profile, whatever it is.
struct Subject {
  std::string text;
  Json config;
  std::string dtype;
  plan::Fit fit;
  int64_t warmup, passes;
  std::function<plan::Floor(plan::Peaks&)> floor;
  // Makes the work, calls back with it, and destroys it.
  std::function<void(const std::function<void(const Profiler::Work&)>&)> with_work;
};

// None if interrupted. The trace is handed out, not written: a full disk must not cost the measurement.
std::optional<Json> profile_one(const Subject& s, DeviceType device, const ProfileOptions& options, Profiler& profiler,
                                plan::Peaks& peaks, std::string& trace) {
  Json oom = s.config;
  oom["status"] = "oom";
  if (!s.fit.fits) {
    oom["reason"] = s.fit.reason;
    return oom;
  }
  allocator_of(device).release_cached();
  Roofline roofline{peaks.product(s.dtype), peaks.copy()};  // while there is room to measure them
  plan::Floor floor = s.floor(peaks);
  std::optional<Json> result;
  restart_product_tuning();
  try {
    s.with_work([&](const Profiler::Work& work) {
      std::optional<Profile> p = profiler.run(work, s.warmup, s.passes, !options.trace.empty());
      if (!p) return;
      if (!options.trace.empty()) trace = to_kineto(p->trace);
      result = profile_result(s.config, *p, options.range, roofline, floor);
      add_tuning(*result, product_tuning());
    });
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    oom["reason"] = e.what();
    result = oom;
  }
  allocator_of(device).release_cached();
  return result;
}

void check_options(const ProfileOptions& options, const OutputOptions& output, size_t runs) {
  check(options.trace.empty() || options.trace.ends_with(".json"), "--trace {}: the name must end in .json",
        options.trace);
  check_output(output, {{"--trace", options.trace}});
  check(options.trace.empty() || runs == 1, "--trace {}: a trace is of one configuration, but these flags make {}",
        options.trace, runs);
}

int profile_all(Json record, size_t count, const std::function<Subject(size_t)>& subject, DeviceType device,
                const ProfileOptions& options, OutputOptions output) {
  record["config"]["top"] = options.top;
  Progress progress;
  catch_interrupts();
  Profiler profiler(device, options.profiler);
  plan::Peaks peaks(device);
  std::string trace;
  bool all_oom = true;
  for (size_t i = 0; i < count; ++i) {
    Subject s = subject(i);
    progress.now(s.text);
    std::optional<Json> r = profile_one(s, device, options, profiler, peaks, trace);
    if (!r) break;
    all_oom = all_oom && (*r)["status"] == "oom";
    progress.done(fmt::format("{}: {}", s.text, outcome(*r)));
    record["results"].push_back(std::move(*r));
  }
  if (!record["results"].empty()) {
    if (all_oom) output.plot.clear();
    write_output(output, record);
  }
  if (!trace.empty()) {
    write_file(options.trace, trace);
    progress.done("trace: " + options.trace + " (ui.perfetto.dev, chrome://tracing)");
  }
  if (interrupted()) {
    progress.done(interrupted_text(record["results"].size(), count));
    return interrupted_exit_code;
  }
  return all_oom ? int(ErrorKind::memory) : 0;
}

}  // namespace

int profile_model(const SweepOptions& given, const ProfileOptions& options, const OutputOptions& output,
                  const MakeModel& make_model) {
  SweepOptions sweep = with_defaults(given);
  set_up_process(sweep);
  check(sweep.warmup.size() == 1, "--warmup: give one number of untimed passes; `bench model` compares several");
  std::vector<MeasuredRun> runs = expand(sweep);
  check_options(options, output, runs.size());
  auto subject = [&](size_t i) {
    const MeasuredRun& c = runs[i];
    Json config = to_json(c);
    config["attention_why"] = c.attention_why;
    plan::Prediction need = plan::predict(c, target_of(c.device), make_model);
    return Subject{c.text(),
                   config,
                   c.precision.name,
                   plan::fit_of(need, backend_of(c.device).free_bytes()),
                   c.warmup,
                   c.steps,
                   [&c, need](plan::Peaks& peaks) { return plan::floor_of(c, need, peaks); },
                   [&c, &make_model](const auto& use) {
                     Workload work(c, c.device, make_model);
                     use([&] { work.run(); });
                   }};
  };
  DeviceType device = runs[0].device;
  return profile_all(new_record("profile model", machine_block(device), to_json(sweep)), runs.size(), subject, device,
                     options, output);
}

int profile_attention(const std::vector<AttentionConfig>& configs, int64_t warmup, int64_t passes,
                      const ProfileOptions& options, const OutputOptions& output) {
  check(warmup >= 0 && warmup <= 1000000, "--warmup must be between 0 and 1000000, not {}", warmup);
  check(passes >= 1 && passes <= 1000000, "--steps must be between 1 and 1000000, not {}", passes);
  check_options(options, output, configs.size());
  auto subject = [&](size_t i) {
    const AttentionConfig& c = configs[i];
    int64_t need = predict(c).peak_bytes, free = backend_of(c.device).free_bytes();
    plan::Fit fit{need <= free, free, "", ""};
    if (!fit.fits)
      fit.reason = fmt::format("needs {}, {} are free", bytes_text(double(need)), bytes_text(double(free)));
    auto no_floor = [](plan::Peaks&) { return plan::Floor(); };  // the roofline of its ops says it
    return Subject{c.text(), to_json(c), c.precision.name, fit, warmup, passes, no_floor, [&c](const auto& use) {
                     AttentionWork work(c, c.device);
                     use([&] { work.run(); });
                   }};
  };
  DeviceType device = configs[0].device;
  Json config = configs.size() == 1 ? to_json(configs[0]) : Json::object();
  return profile_all(new_record("profile attention", machine_block(device), config), configs.size(), subject, device,
                     options, output);
}

}  // namespace sinter::lab
