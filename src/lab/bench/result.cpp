// From a measurement to the fields of a record.
#include <cmath>

#include "lab/bench/bench_model.h"
#include "lab/memory/memory_json.h"
#include "lab/tuning.h"
#include "plan/floor.h"
#include "plan/gpus.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

Json common(const MeasuredRun& c, const plan::Prediction& need) {
  const ModelConfig& m = c.model;
  return {{"engine", "sinter"},
          {"size", m.name},
          {"device", name_of(c.device)},
          {"dtype", c.precision.name},
          {"mode", name_of(c.mode)},
          {"passes", c.mode == Mode::compiled ? Json(c.passes) : Json()},
          {"attention", name_of(m.attention.kind)},
          {"attention_why", c.attention_why},
          {"deterministic", m.attention.deterministic},
          {"maths", maths_text(c.precision)},
          {"pass", name_of(c.pass)},
          {"batch", c.batch},
          {"accumulate", c.accumulate},
          {"ctx", m.ctx},
          {"d_model", m.d_model},
          {"d_ff", m.d_ff},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.key_value_heads()},
          {"vocab", m.vocab},
          {"seed", c.seed},
          {"warmup", c.warmup},
          {"steps", c.steps},
          {"status", "ok"},
          {"reason", ""},
          {"samples_ms", Json::array()},
          {"trajectory_ms", Json::array()},
          {"phases", Json::object()},
          {"parameters", need.walk.parameters},
          {"tensors", need.walk.tensors},
          {"flops", need.flops},
          {"flops_executed", need.flops_executed},
          {"mfu", nullptr},
          {"mfu_datasheet", nullptr},
          {"floor_ms", nullptr},
          {"floor_multiple", nullptr},
          {"tokens_per_s", nullptr},
          {"peak_bytes", nullptr},
          {"predicted_peak_bytes", need.walk.steady.peak_allocated},
          {"need_bytes", need.bytes()},
          {"config", to_json(c)}};
}

// What the first passes took beyond a later one and what is known by name. Libraries and modules are loaded in the first, kernels and
// products chosen; the second captures the step.
void add_first_runs(Json& compiled, const Measurement& m, double median) {
  auto beyond = [&](size_t pass, double known) {
    return pass < m.wall_ms.size() ? Json(std::max(0.0, m.wall_ms[pass] - median - known)) : Json();
  };
  double known = compiled["trace_ms"].get<double>() + compiled["passes_ms"].get<double>() +
                 compiled["build_ms"].get<double>() + 1e3 * m.tuning.seconds;
  compiled["first_run_ms"] = beyond(0, known);
  compiled["capture_ms"] = compiled["captured"] == true ? beyond(1, 0) : Json();
}

}  // namespace

Json compilation_json(const compile::Compilation& c, const compile::CompileTime& time) {
  const compile::Graph& graph = c.executable->graph();
  Json passes = Json::array();
  for (const compile::Report& p : c.reports)
    passes.push_back({{"pass", p.pass},
                      {"calls_before", p.nodes_before},
                      {"calls_after", p.nodes_after},
                      {"bytes_before", p.bytes_before},
                      {"bytes_after", p.bytes_after}});
  return {{"trace_ms", time.trace_ms},
          {"passes_ms", time.passes_ms},
          {"build_ms", time.build_ms},
          {"calls", graph.nodes.size()},
          {"arena_bytes", graph.arena_bytes},
          {"live_bytes", graph.live_bytes_at_most()},
          {"captured", c.executable->is_captured()},
          {"passes", passes}};
}

Json result_of(const MeasuredRun& c, const plan::Prediction& need, const Measurement& m, plan::Peaks& peaks) {
  Json r = common(c, need);
  std::vector<double> wall = m.timed_wall_ms();
  Statistics total = statistics_of(wall);
  double forward = need.forward_flops, backward = need.flops_executed - need.forward_flops_executed;

  std::vector<std::vector<double>> samples;
  for (size_t p = 0; p < m.phases_ms.size(); ++p) samples.push_back(m.timed_phase_ms(p));
  auto doubts = [&](double peak) {
    std::string d = doubt("whole pass", need.flops_executed, total.median, peak);
    if (d.empty() && !samples.empty())
      d = doubt("forward", need.forward_flops_executed, statistics_of(samples[0]).median, peak);
    if (d.empty() && samples.size() > 1) d = doubt("backward", backward, statistics_of(samples[1]).median, peak);
    return d;
  };
  double peak = peaks.product(c.precision.name);
  std::string reason = doubts(peak);
  if (!reason.empty()) {  // the peak may have been measured at a bad moment
    peaks.confirm_product(c.precision.name);
    reason = doubts(peak = peaks.product(c.precision.name));
  }
  if (!std::isfinite(m.loss)) reason = fmt::format("the loss is {}", m.loss);

  r["status"] = reason.empty() ? "ok" : "suspect";
  r["reason"] = reason;
  r["samples_ms"] = wall;
  r["trajectory_ms"] = m.wall_ms;
  r["mean_ms"] = total.mean;
  r["std_ms"] = total.std;
  r["median_ms"] = total.median;
  for (size_t p = 0; p < samples.size(); ++p) {
    Statistics s = statistics_of(samples[p]);
    double flops = p == 0 ? forward : p == 1 ? 2 * forward : 0;
    r["phases"][name_of(Phase(p))] = {{"samples_ms", samples[p]},
                                      {"mean_ms", s.mean},
                                      {"std_ms", s.std},
                                      {"median_ms", s.median},
                                      {"tflops", flops > 0 ? Json(flops / s.median / 1e9) : Json()}};
  }
  double rate = need.flops / total.median * 1e3;
  r["tflops"] = rate / 1e12;
  r["measured_peak_tflops"] = peak > 0 ? Json(peak / 1e12) : Json();
  if (peak > 0) r["mfu"] = rate / peak;
  if (c.device == DeviceType::cuda)
    if (auto sheet = plan::datasheet_product(backend_of(c.device).info().name, c.precision.name)) {
      r["datasheet_peak_tflops"] = *sheet / 1e12;
      r["mfu_datasheet"] = rate / *sheet;
    }
  if (double floor = plan::floor_of(c, need, peaks).ms(); floor > 0) {
    r["floor_ms"] = floor;
    r["floor_multiple"] = total.median / floor;
    if (c.pass == Pass::step) r["measured_copy_gbs"] = peaks.copy() / 1e9;
  }
  r["tokens_per_s"] = double(c.accumulate * c.batch * c.model.ctx) / total.median * 1e3;
  r["peak_bytes"] = m.memory.peak_allocated;
  r["reserved_bytes"] = m.memory.peak_reserved;
  r["memory"] = categories_json(m.memory.at_peak_by);
  if (c.pass != Pass::forward) r["loss"] = m.loss;
  r["setup_ms"] = m.setup_ms;
  if (!m.compiled.is_null()) {
    r["compiled"] = m.compiled;
    add_first_runs(r["compiled"], m, total.median);
  }
  add_tuning(r, m.tuning);
  if (!m.clocks.empty()) r["clocks"] = m.clocks;
  return r;
}

Json oom_result(const MeasuredRun& c, const plan::Prediction& need, const std::string& reason, int64_t free_bytes) {
  Json r = common(c, need);
  r["status"] = "oom";
  r["reason"] = reason;
  r["free_bytes"] = free_bytes;
  r["memory"] = categories_json(
      (need.walk.first.peak_allocated > need.walk.steady.peak_allocated ? need.walk.first : need.walk.steady)
          .at_peak_by);
  return r;
}

Json planned_result(const MeasuredRun& c, const plan::Prediction& need, const plan::Fit& fit) {
  Json r = oom_result(c, need, fit.reason, fit.free_bytes);
  if (fit.fits) r["status"] = "ok";
  return r;
}

}  // namespace sinter::lab
