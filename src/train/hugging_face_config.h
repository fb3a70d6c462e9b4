// config.json of Hugging Face's transformers, for models of Llama's kind. A field that changes the arithmetic to what
// the model here does not do is refused by name, and so is one that nobody knows.
#pragma once
#include "nn/model.h"
#include "system/json.h"

namespace sinter {

struct HuggingFaceConfig {
  ModelConfig model;          // ctx: 0 where the file states none
  int64_t max_token_id = -1;  // the largest that the file names
};
HuggingFaceConfig read_hugging_face_config(const Json& config, const std::string& path);

// What transformers makes the same model of; weights of type `dtype`.
Json hugging_face_config(const ModelConfig& model, DType dtype);

}  // namespace sinter
