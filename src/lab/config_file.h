// --config FILE: a sinter record, or a Hugging Face config.json with Llama-style field names.
#pragma once
#include "lab/sweep.h"

namespace sinter::lab {

SweepOptions read_config_file(const std::string& path);
SweepOptions sweep_of(const ModelConfig& model);  // its shape and arithmetic, but neither context nor attention

}  // namespace sinter::lab
