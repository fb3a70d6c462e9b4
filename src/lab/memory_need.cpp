#include "lab/memory_need.h"

#include "lab/units.h"

namespace sinter::lab {
namespace {

class FlopCounter : public Interceptor {
 public:
  void called(const OpCall& used, TensorPtrs, const Outputs& outputs) override {
    if (!used.op.cost) return;
    Cost cost = used.op.cost(used, outputs);
    flops += cost.matmul_flops;
    executed += cost.executed();
  }
  double flops = 0, executed = 0;
};

FlopCounter count_flops(const auto& work) {
  FlopCounter counter;
  Listening listening(counter);
  work();
  return counter;
}

}  // namespace

Need predict(const RunConfig& c, const MakeModel& make_model) {
  MetaTarget target(c.device);
  CachingAllocator& allocator = allocator_of(DeviceType::meta);
  allocator.release_cached();
  allocator.reset_peak();
  Need need;
  {
    Workload work(c, DeviceType::meta, make_model);
    need.parameters = work.parameters().count();
    need.tensors = int64_t(work.parameters().entries().size());
    work.run();
    need.first = allocator.stats();
    allocator.reset_peak();
    need.flops_executed = count_flops([&] { work.run(); }).executed;
    need.steady = allocator.stats();
    need.forward_flops = count_flops([&] { work.forward(); }).flops;
    need.flops = need.forward_flops * (c.pass == Pass::forward ? 1 : 3);
  }
  allocator.release_cached();
  return need;
}

Json categories_json(const MemoryStats& s) {
  Json j = Json::object();
  for (int c = 0; c < memory_category_count; ++c)
    if (s.at_peak_by[c] > 0) j[name_of(MemoryCategory(c))] = s.at_peak_by[c];
  return j;
}

Fit fit_of(const Need& need, const RunConfig& c) {
  Fit fit{true, backend_of(c.device).free_bytes(), "", ""};
  fit.fits = need.bytes() <= fit.free_bytes;
  if (!fit.fits)
    fit.reason =
        fmt::format("needs {}, {} are free", bytes_text(double(need.bytes())), bytes_text(double(fit.free_bytes)));
  else if (need.reserved() > fit.free_bytes)
    fit.warning = fmt::format(
        "needs {} in segments, {} are free: cached memory will be given back and taken again, which "
        "takes time",
        bytes_text(double(need.reserved())), bytes_text(double(fit.free_bytes)));
  return fit;
}

}  // namespace sinter::lab
