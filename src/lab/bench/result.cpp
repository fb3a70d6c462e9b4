#include "lab/bench/result.h"

#include <cmath>

#include "lab/memory/memory_json.h"
#include "plan/floor.h"
#include "plan/gpus.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

BenchResult common(const MeasuredRun& c, const plan::Prediction& need) {
  BenchResult r;
  r.run = c;
  r.attention = name_of(c.model.attention.kind);
  r.mode = name_of(c.mode);
  r.attention_why = c.attention_why;
  r.maths = maths_text(c.precision);
  r.parameters = need.walk.parameters;
  r.tensors = need.walk.tensors;
  r.flops = need.flops;
  r.flops_executed = need.flops_executed;
  r.predicted_peak_bytes = need.walk.steady.peak_allocated;
  r.need_bytes = need.bytes();
  return r;
}

// What the first passes took beyond a later one and what is known by name. Libraries and modules are loaded in the
// first, kernels and products chosen; the second captures the step.
void add_first_runs(CompilationResult& compiled, const Measurement& m, double median) {
  auto beyond = [&](size_t pass, double known) {
    return pass < m.wall_ms.size() ? std::optional(std::max(0.0, m.wall_ms[pass] - median - known)) : std::nullopt;
  };
  compiled.first_run_ms =
      beyond(0, compiled.trace_ms + compiled.passes_ms + compiled.build_ms + 1e3 * m.tuning.seconds);
  if (compiled.captured) compiled.capture_ms = beyond(1, 0);
}

}  // namespace

std::string doubt_of(const plan::Prediction& need, const Measurement& m, double peak) {
  auto median = [&](size_t phase) { return statistics_of(m.timed_phase_ms(phase)).median; };
  std::string d = doubt("whole pass", need.flops_executed, statistics_of(m.timed_wall_ms()).median, peak);
  if (d.empty() && !m.phases_ms.empty()) d = doubt("forward", need.forward_flops_executed, median(0), peak);
  if (d.empty() && m.phases_ms.size() > 1)
    d = doubt("backward", need.flops_executed - need.forward_flops_executed, median(1), peak);
  return d;
}

BenchResult result_of(const MeasuredRun& c, const plan::Prediction& need, const Measurement& m, plan::Peaks& peaks) {
  BenchResult r = common(c, need);
  double peak = peaks.product(c.precision.name);
  r.reason = std::isfinite(m.loss) ? doubt_of(need, m, peak) : fmt::format("the loss is {}", m.loss);
  if (!r.reason.empty()) r.status = "suspect";
  r.samples_ms = m.timed_wall_ms();
  r.trajectory_ms = m.wall_ms;
  Statistics total = statistics_of(r.samples_ms);
  r.mean_ms = total.mean, r.std_ms = total.std, r.median_ms = total.median;
  for (size_t p = 0; p < m.phases_ms.size(); ++p)
    r.phases[name_of(Phase(p))] = times_of(m.timed_phase_ms(p), p < 2 ? double(p + 1) * need.forward_flops : 0);

  double rate = need.flops / total.median * 1e3;
  r.tflops = rate / 1e12;
  if (peak > 0) r.measured_peak_tflops = peak / 1e12, r.mfu = rate / peak;
  if (c.device == DeviceType::cuda)
    if (auto sheet = plan::datasheet_product(backend_of(c.device).info().name, c.precision.name))
      r.datasheet_peak_tflops = *sheet / 1e12, r.mfu_datasheet = rate / *sheet;
  if (double floor = plan::floor_of(c, need, peaks).ms(); floor > 0) {
    r.floor_ms = floor, r.floor_multiple = total.median / floor;
    if (c.pass == Pass::step) r.measured_copy_gbs = peaks.copy() / 1e9;
  }
  r.tokens_per_s = double(c.accumulate * c.batch * c.model.ctx) / total.median * 1e3;
  r.peak_bytes = m.memory.peak_allocated;
  r.reserved_bytes = m.memory.peak_reserved;
  r.memory = categories_json(m.memory.at_peak_by);
  if (c.pass != Pass::forward) r.loss = m.loss;
  r.setup_ms = m.setup_ms;
  r.compiled = m.compiled;
  if (r.compiled) add_first_runs(*r.compiled, m, total.median);
  r.tuning = tuning_of(m.tuning);
  if (!m.clocks.empty()) r.clocks = m.clocks;
  return r;
}

BenchResult oom_result(const MeasuredRun& c, const plan::Prediction& need, const std::string& reason,
                       int64_t free_bytes) {
  BenchResult r = common(c, need);
  r.status = "oom";
  r.reason = reason;
  r.free_bytes = free_bytes;
  const plan::Walk& walk = need.walk;
  bool first = walk.first.peak_allocated > walk.steady.peak_allocated;
  r.memory = categories_json((first ? walk.first : walk.steady).at_peak_by);
  return r;
}

}  // namespace sinter::lab
