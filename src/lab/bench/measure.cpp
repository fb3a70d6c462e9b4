// Timing a model, and what starting up costs.
#include "core/clock.h"
#include "lab/bench/bench_model.h"
#include "ops/ops.h"

namespace sinter::lab {

Startup::Startup(const std::string& name) {
  DeviceType device = DeviceType::cpu;
  auto stage = [&](const char* name, const auto& work) {
    auto begin = steady_ns();
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

std::optional<Measurement> measure(const MeasuredRun& c, int64_t timed, const MakeModel& make_model,
                                   Progress& progress) {
  Measurement m;
  CachingAllocator& allocator = allocator_of(c.device);
  allocator.release_cached();
  restart_product_tuning();
  {
    auto begin = steady_ns();
    Workload work(c, c.device, make_model);
    synchronize(c.device);
    m.setup_ms = ms_since(begin);
    TimedWork passes{c.device, c.text(), phases_of(c), c.warmup, [&](const auto& mark) { work.run(mark); }};
    if (!time_passes(passes, timed, m, progress)) return {};
    if (work.loss().defined()) m.loss = item(work.loss());
    compile::CompileTime time;  // a step of micro-batches is several
    for (const Trainer::Replayed& r : work.trainer().replayed()) {
      time += r.compiled->compile_time();
      m.compiled = compilation_of(r.compiled->compilation(), time);
    }
    m.tuning = product_tuning();
  }
  allocator.release_cached();
  return m;
}

}  // namespace sinter::lab
