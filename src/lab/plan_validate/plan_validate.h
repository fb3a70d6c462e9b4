// Predictions beside measurements: of published runs, and of records that sinter has written.
#pragma once
#include "lab/output.h"
#include "train/run_config.h"

namespace sinter::lab {

struct PlanValidateOptions {
  std::string published;             // a file of runs
  std::vector<std::string> records;  // of bench model, bench ddp, bench shard
  int64_t random = 0;                // shapes that nobody chose, measured now
  int64_t seed = 0;
  std::string machine, network;
};
int plan_validate(const PlanValidateOptions& options, const OutputOptions& output, const MakeModel& make_model);
View plan_validate_view(const Json& record);

}  // namespace sinter::lab
