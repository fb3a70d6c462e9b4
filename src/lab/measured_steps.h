// Steps of records, to predict them: what ran, and how long it took.
#pragma once
#include "lab/sweep.h"

namespace sinter::lab {

struct MeasuredStepOf {
  MeasuredRun run;  // with ranks that communicate, its group is one on paper
  double ms;
  double spread;             // of its samples: standard deviation ÷ median
  int64_t ranks = 1;         // that took the step at the same time …
  std::string backend = {};  // … and by what they communicated; empty if they did not
  double share_device = 1;   // so many of them had one device

  std::string text() const;
};
// Of a record of bench model, bench ddp or bench shard, sinter's own that came to an end. Refuses other records, and
// other devices than `on`.
std::vector<MeasuredStepOf> measured_steps(const std::string& file, const DeviceInfo& on);

}  // namespace sinter::lab
