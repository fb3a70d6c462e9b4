// A result of bench model: of ours, or of a peer that ran the same.
#pragma once
#include "lab/compilation.h"
#include "lab/measure.h"
#include "lab/sweep.h"
#include "lab/tuning.h"
#include "plan/peaks.h"
#include "plan/prediction.h"

namespace sinter::lab {

struct BenchResult {
  std::string engine = "sinter";  // or the peer and its version
  MeasuredRun run;
  std::string attention, mode;  // a peer has its own
  std::optional<std::string> attention_why, maths;
  std::string status = "ok", reason;
  std::vector<double> samples_ms, trajectory_ms;
  std::optional<double> mean_ms, std_ms, median_ms;
  Json phases = Json::object();  // Times by phase
  std::optional<std::vector<RankTimes>> ranks;
  std::optional<int64_t> parameters, tensors;
  std::optional<double> flops, flops_executed, tflops;
  std::optional<double> measured_peak_tflops, mfu, datasheet_peak_tflops, mfu_datasheet;
  std::optional<double> floor_ms, floor_multiple, measured_copy_gbs;
  std::optional<double> tokens_per_s;
  std::optional<int64_t> peak_bytes, reserved_bytes, predicted_peak_bytes, need_bytes, free_bytes;
  std::optional<Json> memory;  // bytes by category at the peak
  std::optional<double> loss, setup_ms;
  std::optional<CompilationResult> compiled;
  TuningResult tuning;
  std::optional<Json> clocks;
  std::optional<Json> peer;  // what a peer says of its own versions, date, GPU and clocks

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("engine", self.engine);
    MeasuredRun::fields(self.run, f);
    f("attention", self.attention);
    f("mode", self.mode);
    f("attention_why", self.attention_why);
    f("maths", self.maths);
    f("status", self.status);
    f("reason", self.reason);
    f("samples_ms", self.samples_ms);
    f("trajectory_ms", self.trajectory_ms);
    f("mean_ms", self.mean_ms);
    f("std_ms", self.std_ms);
    f("median_ms", self.median_ms);
    f("phases", self.phases);
    f("ranks", self.ranks);
    f("parameters", self.parameters);
    f("tensors", self.tensors);
    f("flops", self.flops);
    f("flops_executed", self.flops_executed);
    f("tflops", self.tflops);
    f("measured_peak_tflops", self.measured_peak_tflops);
    f("mfu", self.mfu);
    f("datasheet_peak_tflops", self.datasheet_peak_tflops);
    f("mfu_datasheet", self.mfu_datasheet);
    f("floor_ms", self.floor_ms);
    f("floor_multiple", self.floor_multiple);
    f("measured_copy_gbs", self.measured_copy_gbs);
    f("tokens_per_s", self.tokens_per_s);
    f("peak_bytes", self.peak_bytes);
    f("reserved_bytes", self.reserved_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("need_bytes", self.need_bytes);
    f("free_bytes", self.free_bytes);
    f("memory", self.memory);
    f("loss", self.loss);
    f("setup_ms", self.setup_ms);
    f("compiled", self.compiled);
    TuningResult::fields(self.tuning, f);
    f("clocks", self.clocks);
    f("peer", self.peer);
    f("config", config_of(self.run));
  }
};

BenchResult result_of(const MeasuredRun& config, const plan::Prediction& need, const Measurement& m,
                      plan::Peaks& peaks);
BenchResult oom_result(const MeasuredRun& config, const plan::Prediction& need, const std::string& reason,
                       int64_t free_bytes);
// The reason to doubt a measurement, or nothing.
std::string doubt_of(const plan::Prediction& need, const Measurement& m, double product_peak);

}  // namespace sinter::lab
