#include "lab/measured_steps.h"

#include "core/check.h"
#include "lab/record.h"

namespace sinter::lab {

std::vector<MeasuredStepOf> measured_steps(const std::string& file, const DeviceInfo& on) {
  const Json record = read_record(file);
  check(record.value("command", "") == "bench model", "{}: a record of {}; give one of bench model", file,
        record.value("command", "?"));
  std::vector<MeasuredStepOf> steps;
  for (const Json& r : record.at("results")) {
    if (r.value("engine", "") != "sinter" || r.value("status", "") != "ok" || !r.contains("config")) continue;
    check(r.value("device", "") == name_of(on.type), "{}: measured on {}, and the machine is a {}", file,
          r.value("device", "?"), name_of(on.type));
    SweepOptions sweep = sweep_from_json(r["config"], file);
    sweep.threads = {}, sweep.no_tune = {};
    if (r.contains("attention")) sweep.attention = {r["attention"].get<std::string>()};  // what ran
    double median = r.at("median_ms");
    steps.push_back({expand(with_defaults(sweep), on).at(0), median, r.value("std_ms", 0.0) / median});
  }
  check(!steps.empty(), "{}: holds no step that sinter measured", file);
  return steps;
}

}  // namespace sinter::lab
