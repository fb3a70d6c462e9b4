// Between checkpoints and the folders of Hugging Face's transformers.
#pragma once
#include <string>

#include "train/run_config.h"

namespace sinter::lab {

int export_model(const std::string& checkpoint, const std::string& folder, const std::string& dtype,
                 const MakeModel& make_model);
int import_model(const std::string& folder, const std::string& out, const MakeModel& make_model);

}  // namespace sinter::lab
