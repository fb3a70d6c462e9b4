// Text from a trained model.
#pragma once
#include "lab/output.h"
#include "lab/sweep.h"
#include "train/sampling.h"

namespace sinter::lab {

struct GenerateOptions {
  std::string checkpoint;
  std::optional<std::string> prompt, prompt_file;
  std::vector<int64_t> prompt_ids, stop_ids;
  std::string stop;
  int64_t tokens = 200, samples = 1;
  SamplingOptions sampling{.temperature = 0.8};
  std::string logits;  // a file; empty: none
  SweepOptions sweep;  // device, types, attention, context
};

int generate(GenerateOptions options, const OutputOptions& output, const MakeModel& make_model);
View generate_view(const Json& record);

}  // namespace sinter::lab
