#include "lab/measure.h"

#include <cmath>

#include "core/clock.h"
#include "system/nvml.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

constexpr double tolerance = 1.05;  // how far a result may lie above the measured peak before it is doubted

std::vector<double> timed_of(const std::vector<double>& all, const std::vector<bool>& timed) {
  std::vector<double> v;
  for (size_t i = 0; i < all.size(); ++i)
    if (timed[i]) v.push_back(all[i]);
  return v;
}

}  // namespace

Times times_of(const std::vector<double>& samples_ms, double flops) {
  Statistics s = statistics_of(samples_ms);
  return {samples_ms, s.mean, s.std, s.median, flops > 0 ? std::optional(flops / s.median / 1e9) : std::nullopt};
}

void Measurement::append(const Measurement& later) {
  auto extend = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
  extend(wall_ms, later.wall_ms);
  extend(timed, later.timed);
  for (size_t p = 0; p < phases_ms.size(); ++p) extend(phases_ms[p], later.phases_ms[p]);
  if (later.memory.peak_allocated > memory.peak_allocated) memory = later.memory;
  loss = std::isfinite(loss) ? later.loss : loss;
  clocks = later.clocks;
  tuning.tuned += later.tuning.tuned, tuning.seconds += later.tuning.seconds;
}

double ms_since(int64_t begin_ns) { return double(steady_ns() - begin_ns) / 1e6; }

std::vector<double> Measurement::timed_wall_ms() const { return timed_of(wall_ms, timed); }
std::vector<double> Measurement::timed_phase_ms(size_t phase) const { return timed_of(phases_ms[phase], timed); }

bool time_passes(const TimedWork& work, int64_t timed, Measurement& m, Progress& progress) {
  CachingAllocator& allocator = allocator_of(work.device);
  m.phases_ms.resize(size_t(work.phases));
  Event start(work.device);
  std::vector<std::unique_ptr<Event>> ends;  // by phase
  for (int p = 0; p < phase_count; ++p) ends.push_back(std::make_unique<Event>(work.device));
  auto begin = steady_ns();
  for (int64_t i = 0; i < work.warmup + timed; ++i) {
    if (interrupted()) return false;
    bool warm = i >= work.warmup;
    progress.now(fmt::format("{}: {} {}/{}", work.text, warm ? "timed" : "warm-up", warm ? i + 1 - work.warmup : i + 1,
                             warm ? timed : work.warmup));
    if (i == work.warmup) allocator.reset_peak(), begin = steady_ns();
    if (warm && work.seconds > 0 && i >= work.warmup + 3 && ms_since(begin) > 1e3 * work.seconds) break;
    synchronize(work.device);
    auto clock = steady_ns();
    if (work.before) work.before();
    start.record();
    work.run([&](Phase phase) { ends[size_t(phase)]->record(); });
    synchronize(work.device);
    m.wall_ms.push_back(ms_since(clock));
    m.timed.push_back(warm);
    for (size_t p = 0; p < size_t(work.phases); ++p)
      m.phases_ms[p].push_back(ends[p]->ms_since(p ? *ends[p - 1] : start));
  }
  m.memory = allocator.stats();
  if (work.device == DeviceType::cuda) {  // clocks while it works, not after
    work.run({});
    m.clocks = gpu_clocks(backend_of(work.device).info().uuid);
    synchronize(work.device);
  }
  return true;
}

std::string doubt(const std::string& what, double flops, double ms, double peak) {
  double rate = flops / ms * 1e3;
  if (peak <= 0 || rate <= peak * tolerance) return "";
  return fmt::format("{}: {} TFLOP/s executed, but the measured peak is {}", what, significant(rate / 1e12, 3),
                     significant(peak / 1e12, 3));
}

}  // namespace sinter::lab
