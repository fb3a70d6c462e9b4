// Weights as Hugging Face's transformers keeps those of Llama: a folder with config.json and model.safetensors, or
// several files and model.safetensors.index.json.
//
// Note [Half-split rows]: the rotation is of pairs of a head's elements. Here pairs are neighbours, (2p, 2p + 1); there
// the head is split in half, (p, D/2 + p). So a head's rows of q and k, and nothing else, are in another order in those
// files: row 2p + j here is row j·D/2 + p there, j being 0 or 1. Scores are sums over a head's elements, so the order
// of them does not change the model.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/model.h"

namespace sinter {

class SafetensorsFile;

// "layers.3.attn.q.weight" -> "model.layers.3.self_attn.q_proj.weight"
std::string hugging_face_name(const std::string& entry);

// Writes the masters as `dtype` (fp32, bf16 or fp16) into a folder that does not exist yet or is empty.
void export_hugging_face(const Parameters& parameters, const ModelConfig& config, DType dtype,
                         const std::string& folder);

// A folder to read. Whatever cannot be honoured is refused by name before any weight is read.
class HuggingFaceFolder {
 public:
  explicit HuggingFaceFolder(const std::string& folder);
  ~HuggingFaceFolder();
  const ModelConfig& config() const { return config_; }  // attention: not chosen yet
  // Of a model of that configuration: exact where the files are fp32, bf16 or fp16 and the masters fp32.
  void load(Parameters& into) const;

 private:
  void open(const std::string& file);
  void open_files();
  void check_tensors() const;

  std::string folder_;
  ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> where_;  // each tensor
};

}  // namespace sinter
