#include "plan/prediction.h"

#include "profile/cost_counter.h"
#include "system/units.h"

namespace sinter::plan {
namespace {

OpCost count(const auto& work) {
  CostCounter counter;
  Listening listening(counter);
  work();
  return counter.total();
}

}  // namespace

Need predict(const RunConfig& c, const MakeModel& make_model) try {
  MetaTarget target(c.device);
  CachingAllocator& allocator = allocator_of(DeviceType::meta);
  allocator.release_cached();
  allocator.reset_peak();
  Need need;
  {
    Workload work(c, DeviceType::meta, make_model);
    need.parameters = work.trainer().parameters().count();
    need.tensors = int64_t(work.trainer().parameters().entries().size());
    work.run();
    need.first = allocator.stats();
    allocator.reset_peak();
    work.run();
    need.steady = allocator.stats();
  }
  {
    RunConfig eager = c;  // a replay makes no calls that could be counted
    eager.mode = Mode::eager;
    Workload work(eager, DeviceType::meta, make_model);
    need.flops_executed = count([&] { work.run(); }).executed_flops;
    OpCost forward = count([&] { work.forward(); });
    need.forward_flops = forward.matmul_flops;
    need.forward_flops_executed = forward.executed_flops;
    need.flops = need.forward_flops * double(c.accumulate) * (c.pass == Pass::forward ? 1 : 3);
  }
  allocator.release_cached();
  return need;
} catch (const Error& e) {
  if (e.kind() != ErrorKind::memory || c.memory_budget == 0) throw;
  RunConfig free = c;
  free.memory_budget = 0;
  Need need = predict(free, make_model);
  need.refused = e.what();
  return need;
}

Fit fit_of(const Need& need, const RunConfig& c) {
  Fit fit{true, backend_of(c.device).free_bytes(), "", ""};
  fit.fits = need.bytes() <= fit.free_bytes && need.refused.empty();
  if (!need.refused.empty()) fit.reason = need.refused;
  else if (!fit.fits)
    fit.reason =
        fmt::format("needs {}, {} are free", bytes_text(double(need.bytes())), bytes_text(double(fit.free_bytes)));
  else if (need.reserved() > fit.free_bytes)
    fit.warning = fmt::format(
        "needs {} in segments, {} are free: cached memory will be given back and taken again, which "
        "takes time",
        bytes_text(double(need.reserved())), bytes_text(double(fit.free_bytes)));
  return fit;
}

}  // namespace sinter::plan
