// A result of bench attention: of ours, or of PyTorch's for the same shape.
#pragma once
#include "lab/attention/work.h"
#include "lab/compilation.h"
#include "lab/measure.h"

namespace sinter::lab {

struct AttentionTimes : Times {
  std::optional<double> product_limit_ms, exp_limit_ms;
  std::optional<std::string> binds;
  std::optional<double> of_light;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    Times::fields(self, f);
    f("product_limit_ms", self.product_limit_ms);
    f("exp_limit_ms", self.exp_limit_ms);
    f("binds", self.binds);
    f("of_light", self.of_light);
  }
};

struct AttentionPhases {
  std::optional<AttentionTimes> forward, backward, both;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("forward", self.forward);
    f("backward", self.backward);
    f("both", self.both);
  }
};

struct AttentionResult {
  std::string engine = "sinter";
  Json config;  // its fields stand beside the others
  std::string status = "ok", reason;
  AttentionPhases phases;
  std::optional<Times> wall;
  std::optional<double> product_tflops, exp_tera_per_s;
  std::optional<Json> saved;  // bytes by tensor held for backward
  std::optional<int64_t> held_bytes, predicted_held_bytes, peak_bytes, predicted_peak_bytes, free_bytes;
  std::optional<CompilationResult> compiled;
  std::optional<std::string> algorithm;
  std::optional<Json> clocks;
  std::optional<Json> peer;  // what a peer says of its own versions, date, GPU and clocks

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("engine", self.engine);
    for (const auto& [name, value] : self.config.items()) f(name.c_str(), value);
    f("status", self.status);
    f("reason", self.reason);
    f("phases", self.phases);
    f("wall", self.wall);
    f("product_tflops", self.product_tflops);
    f("exp_tera_per_s", self.exp_tera_per_s);
    f("saved", self.saved);
    f("held_bytes", self.held_bytes);
    f("predicted_held_bytes", self.predicted_held_bytes);
    f("peak_bytes", self.peak_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("free_bytes", self.free_bytes);
    f("compiled", self.compiled);
    f("algorithm", self.algorithm);
    f("clocks", self.clocks);
    f("peer", self.peer);
  }
};

// What a configuration gave in all turns.
struct AttentionMeasurement {
  Measurement device;  // queued ahead of the device, so that phases are device time alone
  Measurement host;    // as a program calls it: wall clock with the host's part
  int64_t held_bytes = 0, peak_bytes = 0;
  std::optional<CompilationResult> compiled;  // none: eager
  void append(const AttentionMeasurement& later);
};

AttentionResult attention_result(const AttentionConfig& c, const AttentionNeed& need, const AttentionMeasurement& m,
                                 plan::Peaks& peaks);
AttentionResult attention_oom(const AttentionConfig& c, const AttentionNeed& need, const std::string& reason,
                              int64_t free_bytes);
// The reason to doubt a measurement, or nothing.
std::string doubt_of(const AttentionConfig& c, const AttentionMeasurement& m, double product_rate);
std::string why_it_does_not_fit(const AttentionConfig& c, const AttentionNeed& need, int64_t free_bytes);
Json growth_of(const Json& results);  // fitted exponents of held memory in ctx

}  // namespace sinter::lab
