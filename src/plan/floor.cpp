#include "plan/floor.h"

namespace sinter::plan {

Floor floor_of(const RunConfig& c, const Prediction& p, Peaks& peaks) {
  constexpr double passes_over_parameters = 7;
  double bytes = c.pass == Pass::step
                     ? passes_over_parameters * double(size_of(c.precision.master)) * double(p.walk.parameters)
                     : 0;
  double product = peaks.product(c.precision.name), copy = bytes > 0 ? peaks.copy() : 0;
  if (product <= 0 || (bytes > 0 && copy <= 0)) return {};
  return {p.flops / product * 1e3, bytes > 0 ? bytes / copy * 1e3 : 0};
}

}  // namespace sinter::plan
