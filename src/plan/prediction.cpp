#include "plan/prediction.h"

#include "core/range.h"
#include "system/units.h"

namespace sinter::plan {

Prediction predict(const RunConfig& c, const DeviceInfo& on, const MakeModel& make_model) try {
  Prediction p;
  p.walk = walk_on_meta(c, on, make_model);
  OpCost all, forward;
  for (const auto& [id, cost] : p.walk.ops) {
    const RangeNode* phase = range_of(id).phase();
    all.add(cost);
    if (cost.wire_bytes > 0) p.collectives += cost.calls;
    if (phase && phase->name == name_of(Phase::forward)) forward.add(cost);
  }
  double passes = double(c.accumulate);
  p.forward_flops = forward.matmul_flops / passes;
  p.forward_flops_executed = forward.executed_flops / passes;
  p.flops = forward.matmul_flops * (c.pass == Pass::forward || c.pass == Pass::evaluate ? 1 : 3);
  p.flops_executed = all.executed_flops;
  p.wire_bytes = all.wire_bytes;
  return p;
} catch (const Error& e) {
  if (e.kind() != ErrorKind::memory || c.memory_budget == 0) throw;
  RunConfig free = c;
  free.memory_budget = 0;
  Prediction p = predict(free, on, make_model);
  p.refused = e.what();
  return p;
}

Fit fit_of(const Prediction& need, int64_t free_bytes) {
  Fit fit{true, free_bytes, "", ""};
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
