// Training a model on the user's text.
#pragma once
#include "lab/train/options.h"
#include "lab/view.h"
#include "train/run_config.h"

namespace sinter::lab {

int train(TrainOptions options, const OutputOptions& output, const MakeModel& make_model);
View train_view(const Json& record);

// Logs as a record, so that they are shown like one.
Json record_of_logs(const std::vector<std::string>& paths);

}  // namespace sinter::lab
