#include "lab/tuning.h"

#include <fmt/format.h>

#include "system/units.h"

namespace sinter::lab {

TuningResult tuning_of(const ProductTuning& t) {
  if (t.used == 0) return {};
  return {TuningResult::Cost{t.tuned, t.seconds, t.used}, fmt::format("{:016x}", t.table_hash)};
}

std::string tuning_text(const Json& r) {
  if (!r.contains("tuning") || r["tuning"]["products"] == 0) return "";
  return fmt::format("tuned {} products in {} s", r["tuning"]["products"].get<int64_t>(),
                     significant(r["tuning"]["seconds"].get<double>(), 2));
}

}  // namespace sinter::lab
