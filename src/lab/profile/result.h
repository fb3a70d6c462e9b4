// The fields of a profile. Times are per pass; the rows of kernel tables are over all profiled passes, as nsys counts.
#pragma once
#include "lab/fields.h"
#include "lab/tuning.h"
#include "plan/floor.h"
#include "profile/profiler.h"

namespace sinter::lab {

struct KernelRow {
  double time_share = 0, total_ns = 0;
  int64_t instances = 0;
  double avg_ns = 0, med_ns = 0, min_ns = 0, max_ns = 0, std_ns = 0;
  std::string name;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("time_share", self.time_share);
    f("total_ns", self.total_ns);
    f("instances", self.instances);
    f("avg_ns", self.avg_ns);
    f("med_ns", self.med_ns);
    f("min_ns", self.min_ns);
    f("max_ns", self.max_ns);
    f("std_ns", self.std_ns);
    f("name", self.name);
  }
};

struct KernelShare {
  std::string name;
  double instances = 0, share = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("name", self.name);
    f("instances", self.instances);
    f("share", self.share);
  }
};

struct PhaseProfile {
  std::string phase;
  double ms = 0, launches = 0, gemm_share = 0;
  std::optional<KernelShare> top;
  std::vector<KernelShare> others;  // that are no products, over 1 % of the phase
  std::vector<KernelRow> kernels;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("phase", self.phase);
    f("ms", self.ms);
    f("launches", self.launches);
    f("gemm_share", self.gemm_share);
    f("top", self.top);
    f("non_gemm_over_1_percent", self.others);
    f("kernels", self.kernels);
  }
};

struct RangeRow {
  std::string range;
  double ms = 0, share = 0, launches = 0;
  std::string top;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("range", self.range);
    f("ms", self.ms);
    f("share", self.share);
    f("launches", self.launches);
    f("top", self.top);
  }
};

struct OpRow {
  std::string op;
  double calls = 0, ms = 0, flops = 0, bytes = 0, tflops = 0, gbs = 0;
  std::string bound;  // compute, memory, or nothing where the roofline is not known
  double of_roofline = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("op", self.op);
    f("calls", self.calls);
    f("ms", self.ms);
    f("flops", self.flops);
    f("bytes", self.bytes);
    f("tflops", self.tflops);
    f("gbs", self.gbs);
    f("bound", self.bound);
    f("of_roofline", self.of_roofline);
  }
};

struct AttentionParts {  // softmax against the products inside attention
  double softmax_ms = 0, products_ms = 0, softmax_flops = 0, products_flops = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("softmax_ms", self.softmax_ms);
    f("products_ms", self.products_ms);
    f("time_ratio", self.softmax_ms / self.products_ms);
    f("softmax_flops", self.softmax_flops);
    f("products_flops", self.products_flops);
    f("flop_ratio", self.softmax_flops / self.products_flops);
  }
};

struct DeviceTimeResult {
  double between_events_ms = 0, busy_ms = 0, idle_ms = 0, gaps = 0, longest_gap_ms = 0;
  std::optional<double> busy_and_idle_to_events, launch_calls, launch_ms, launch_us_each;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("between_events_ms", self.between_events_ms);
    f("busy_ms", self.busy_ms);
    f("idle_ms", self.idle_ms);
    f("gaps", self.gaps);
    f("longest_gap_ms", self.longest_gap_ms);
    f("busy_and_idle_to_events", self.busy_and_idle_to_events);
    f("launch_calls", self.launch_calls);
    f("launch_ms", self.launch_ms);
    f("launch_us_each", self.launch_us_each);
  }
};

struct Attribution {
  int64_t activities = 0, unattributed = 0, dropped = 0;
  double total_ms = 0, by_range_ms = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("activities", self.activities);
    f("unattributed", self.unattributed);
    f("dropped", self.dropped);
    f("total_ms", self.total_ms);
    f("by_range_ms", self.by_range_ms);
  }
};

struct TimePart {
  std::string part;
  double ms = 0, kernels = 0;
  std::optional<double> floor_ms;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("part", self.part);
    f("ms", self.ms);
    f("kernels", self.kernels);
    f("floor_ms", self.floor_ms);
  }
};

struct Communication {
  double ms = 0, overlapped = 0;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("ms", self.ms);
    f("overlapped", self.overlapped);
  }
};

struct ProfilerUsed {
  std::string source, why_not_cupti;
  std::vector<std::string> lost;  // what it cannot answer

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("source", self.source);
    f("why_not_cupti", self.why_not_cupti);
    f("lost", self.lost);
  }
};

struct ProfileResult {
  Json config;  // its fields stand beside the others
  ProfilerUsed profiler;
  int64_t passes = 0;
  double wall_ms = 0;
  std::vector<double> plain_samples_ms, profiled_samples_ms;
  double profiled_wall_ms = 0, profiled_mean_ms = 0;
  DeviceTimeResult device_time;
  std::vector<TimePart> parts;
  std::optional<double> floor_ms, floor_multiple;
  Attribution attribution;
  std::vector<PhaseProfile> phases;
  Json attention_parts = Json::object();  // AttentionParts by phase
  std::vector<RangeRow> ranges;
  double peak_tflops = 0, peak_gbs = 0;
  std::vector<OpRow> ops;
  std::optional<Communication> communication;
  std::optional<PhaseProfile> selected;  // of --range
  TuningResult tuning;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    for (const auto& [name, value] : self.config.items()) f(name.c_str(), value);
    f("status", std::string("ok"));
    f("profiler", self.profiler);
    f("passes", self.passes);
    f("wall_ms", self.wall_ms);
    f("plain_samples_ms", self.plain_samples_ms);
    f("profiled_samples_ms", self.profiled_samples_ms);
    f("profiled_wall_ms", self.profiled_wall_ms);
    f("profiled_mean_ms", self.profiled_mean_ms);
    f("slowdown", self.profiled_wall_ms / self.wall_ms);
    f("device_time", self.device_time);
    f("parts", self.parts);
    f("floor_ms", self.floor_ms);
    f("floor_multiple", self.floor_multiple);
    f("attribution", self.attribution);
    f("phases", self.phases);
    f("attention_parts", self.attention_parts);
    f("ranges", self.ranges);
    f("peak_tflops", self.peak_tflops);
    f("peak_gbs", self.peak_gbs);
    f("ops", self.ops);
    f("communication", self.communication);
    f("selected", self.selected);
    TuningResult::fields(self.tuning, f);
  }
};

struct Roofline {
  double flops = 0, bytes = 0;  // per second; 0: not known
};
ProfileResult profile_result(const Json& config, const Profile& profile, const std::string& range_pattern,
                             const Roofline& roofline, const plan::Floor& floor = {});
// Where a pass's time goes, whether it ran call by call or as one: per part the sum of its kernels' times and its share
// of the floor.
std::vector<TimePart> time_parts(const Profile& profile, const plan::Floor& floor);

}  // namespace sinter::lab
