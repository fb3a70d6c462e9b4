// Timing one configuration.
#include <chrono>
#include <cmath>

#include "lab/bench_model.h"
#include "lab/nvml.h"
#include "lab/process.h"
#include "ops/ops.h"

namespace sinter::lab {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

}  // namespace

Startup::Startup(const std::string& name) {
  DeviceType device = DeviceType::cpu;
  auto stage = [&](const char* name, const auto& work) {
    auto begin = Clock::now();
    work();
    synchronize(device);
    add(name, ms_since(begin));
  };
  NoGrad off;
  Tensor x;
  stage("device context", [&] { device = device_named(name); });
  stage("first kernel (module load)", [&] { x = full({64, 64}, 1, DType::f32, device); });
  stage("first product (library handle)", [&] { x = matmul(x, x); });
}

void Measurement::append(const Measurement& later) {
  auto extend = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
  extend(wall_ms, later.wall_ms);
  extend(timed, later.timed);
  for (size_t p = 0; p < phases_ms.size(); ++p) extend(phases_ms[p], later.phases_ms[p]);
  if (later.memory.peak_allocated > memory.peak_allocated) memory = later.memory;
  loss = std::isfinite(loss) ? later.loss : loss;
  clocks = later.clocks;
}

std::optional<Measurement> measure(const RunConfig& c, int64_t timed, const MakeModel& make_model, Progress& progress) {
  Measurement m;
  CachingAllocator& allocator = allocator_of(c.device);
  allocator.release_cached();
  {
    auto begin = Clock::now();
    Workload work(c, c.device, make_model);
    synchronize(c.device);
    m.setup_ms = ms_since(begin);

    int phases = phase_count(c.pass);
    m.phases_ms.resize(size_t(phases));
    Event start(c.device), ends[3] = {Event(c.device), Event(c.device), Event(c.device)};
    for (int64_t i = 0; i < c.warmup + timed; ++i) {
      if (interrupted()) return {};
      progress.now(fmt::format("{}: {} {}/{}", c.text(), i < c.warmup ? "warm-up" : "timed",
                               i < c.warmup ? i + 1 : i + 1 - c.warmup, i < c.warmup ? c.warmup : timed));
      if (i == c.warmup) allocator.reset_peak();
      synchronize(c.device);
      auto clock = Clock::now();
      start.record();
      work.run([&](int phase) { ends[phase].record(); });
      synchronize(c.device);
      m.wall_ms.push_back(ms_since(clock));
      m.timed.push_back(i >= c.warmup);
      for (int p = 0; p < phases; ++p) m.phases_ms[size_t(p)].push_back(ends[p].ms_since(p ? ends[p - 1] : start));
    }
    m.memory = allocator.stats();
    if (work.loss().defined()) m.loss = item(work.loss());
    if (c.device == DeviceType::cuda) {  // clocks while it works, not after
      work.run();
      m.clocks = gpu_clocks(backend_of(c.device).info().name);
      synchronize(c.device);
    }
  }
  allocator.release_cached();
  return m;
}

}  // namespace sinter::lab
