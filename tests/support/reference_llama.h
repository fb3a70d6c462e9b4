// Llama's forward pass as transformers computes it, in double precision and with nothing of ours but the reader of
// files: half-split rotation, weights by their names in the file, sizes from config.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sinter {

std::vector<double> reference_llama_logits(const std::string& folder, const std::vector<int64_t>& tokens);

}  // namespace sinter
