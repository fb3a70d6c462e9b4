// Steps of records, to predict them: what ran, and how long it took.
#pragma once
#include "lab/sweep.h"

namespace sinter::lab {

struct MeasuredStepOf {
  MeasuredRun run;
  double ms;
  double spread;  // of its samples: standard deviation ÷ median
};
// Of a record of bench model, sinter's own that came to an end. Refuses other records, and other devices than `on`.
std::vector<MeasuredStepOf> measured_steps(const std::string& file, const DeviceInfo& on);

}  // namespace sinter::lab
