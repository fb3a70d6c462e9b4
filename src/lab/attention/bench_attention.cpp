#include "lab/attention/bench_attention.h"

#include "core/check.h"
#include "ops/ops.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// What is compared with one another: one shape, pass and dtype.
bool comparable(const AttentionConfig& a, const AttentionConfig& b) {
  Json x = to_json(a), y = to_json(b);
  for (const char* varied : {"attention", "attention_why", "tile", "deterministic", "mode", "passes"})
    x.erase(varied), y.erase(varied);
  return x == y;
}

// Written ahead of each pass on a GPU: it takes the device longer than the host needs to submit a pass, so that the
// events see no launch gaps; it also empties the caches, as between the layers of a model.
constexpr int64_t ahead_bytes = int64_t(512) << 20;

class AttentionCase : public MeasuredCase<AttentionMeasurement> {
 public:
  AttentionCase(const AttentionConfig& config, const AttentionBenchOptions& options, std::shared_ptr<plan::Peaks> peaks)
      : MeasuredCase(options.steps), config_(config), options_(options), peaks_(std::move(peaks)) {}

  std::string text() const override { return config_.text(); }
  plan::Fit fit() override {
    need_ = predict(config_);
    allocator_of(config_.device).release_cached();
    int64_t free = allocator_of(config_.device).free_bytes() - (config_.device == DeviceType::cuda ? ahead_bytes : 0);
    bool fits = need_.peak_bytes <= free;
    return {fits, free, fits ? "" : why_it_does_not_fit(config_, need_, free), ""};
  }
  Json does_not_fit(const std::string& reason, int64_t free_bytes) override {
    return attention_oom(config_, need_, reason, free_bytes);
  }
  std::string outcome(const Json& r) const override {
    if (r["status"] == "oom") return Case::outcome(r);
    const Json& phase = r["phases"].contains("both") ? r["phases"]["both"] : r["phases"]["forward"];
    return significant(phase["median_ms"].get<double>(), 4) + " ms";
  }

 private:
  std::optional<AttentionMeasurement> measure(int64_t timed, Progress& progress) override {
    return lab::measure(config_, options_, timed, progress);
  }
  Json result(const AttentionMeasurement& m) override { return attention_result(config_, need_, m, *peaks_); }
  std::string doubt_of(const AttentionMeasurement& m) override {
    return lab::doubt_of(config_, m, plan::rates_of(config_, *peaks_).product);
  }
  void confirm_peaks() override { plan::confirm_rates(config_, *peaks_); }

  AttentionConfig config_;
  const AttentionBenchOptions& options_;
  std::shared_ptr<plan::Peaks> peaks_;
  AttentionNeed need_;
};

}  // namespace

std::optional<AttentionMeasurement> measure(const AttentionConfig& c, const AttentionBenchOptions& options,
                                            int64_t timed, Progress& progress) {
  AttentionMeasurement m;
  CachingAllocator& allocator = allocator_of(c.device);
  bool cuda = c.device == DeviceType::cuda;
  allocator.release_cached();
  {
    Tensor ahead = cuda ? empty({ahead_bytes / 4}, DType::f32, c.device) : Tensor();
    int64_t before = allocator.stats().allocated;
    allocator.reset_peak();
    AttentionWork work(c, c.device);
    work.run([&](Phase phase) {
      if (phase == Phase::forward) m.held_bytes = allocator.stats().allocated - before - work.grad_bytes();
    });
    if (c.mode == Mode::compiled) m.held_bytes = work.planned_held_bytes();
    int64_t first_peak = allocator.stats().peak_allocated;  // the gradients of q, k and v are made once
    TimedWork passes{c.device, c.text(), c.pass == Pass::forward ? 1 : 2, options.warmup,
                     [&](const auto& mark) { work.run(mark); }};
    passes.seconds = options.seconds;
    if (!time_passes(passes, timed, m.host, progress)) return {};
    if (cuda) {
      passes.before = [&] { fill(ahead, 0); };
      if (!time_passes(passes, timed, m.device, progress)) return {};
    } else {
      m.device = m.host;  // nothing is queued: the two are one
    }
    m.peak_bytes = std::max(first_peak, m.host.memory.peak_allocated) - before;
    if (const compile::Compilation* compilation = work.compilation())
      m.compiled = compilation_of(*compilation, compilation->time);
  }
  allocator.release_cached();
  return m;
}

int bench_attention(const AttentionBenchOptions& options, const OutputOptions& output) {
  check(options.warmup >= 0 && options.warmup <= 1000000, "--warmup must be between 0 and 1000000, not {}",
        options.warmup);
  check(options.steps >= 1 && options.steps <= 1000000, "--steps must be between 1 and 1000000, not {}", options.steps);
  check(options.seconds >= 0, "--seconds must not be negative, and is {}", options.seconds);
  Experiment e{"bench attention",
               {{"table", options.table}, {"warmup", options.warmup}, {"steps", options.steps}},
               options.configs[0].device};
  if (options.seconds > 0) e.config["seconds"] = options.seconds;
  auto peaks = std::make_shared<plan::Peaks>(e.device);
  // With peers all are one group, and the peers run between its turns.
  bool beside = !options.peers.empty();
  e.groups = groups_of(
      options.configs, [&](const auto& a, const auto& b) { return beside || comparable(a, b); },
      [&](const AttentionConfig& c) { return std::make_unique<AttentionCase>(c, options, peaks); });
  if (beside) e.groups[0].cases.push_back(attention_peer(options));
  e.finish = [](Json& record) { record["growth"] = growth_of(record["results"]); };
  return run(e, output);
}

}  // namespace sinter::lab
