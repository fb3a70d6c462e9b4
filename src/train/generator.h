// Continues a sequence of tokens with a model, one token at a time.
#pragma once
#include <functional>

#include "nn/model.h"
#include "train/precision.h"
#include "train/sampling.h"

namespace sinter {

class Generator {
 public:
  // For sequences of up to `capacity` tokens, prompt and continuation together; the model's parameters are on `device`.
  Generator(const Model& model, const ModelConfig& config, const Precision& precision, int64_t capacity,
            DeviceType device);

  // The tokens that every sample begins with. Ids have been checked (check_prompt).
  void read(const std::vector<int64_t>& prompt);
  // Continues what was read with at most `tokens` more: those of sequence `sample`, whatever was generated before.
  // `taken` sees each token as it is drawn; false ends the sequence.
  using Taken = std::function<bool(int64_t token)>;
  void continue_with(int64_t tokens, const SamplingOptions& sampling, uint64_t sample, const Taken& taken);

  static constexpr int64_t chunk = 512;  // tokens of a prompt that are read at once: what bounds activations

 private:
  std::vector<double> next_logits(std::span<const int64_t> tokens);

  const Model& model_;
  Precision precision_;
  DeviceType device_;
  int64_t vocab_;
  KeyValueCache cache_;
  int64_t prompt_ = 0;          // tokens of it
  std::vector<double> logits_;  // of what follows the prompt
};

// Refuses what the model cannot read or continue by `tokens`, with the remedy. `from`: the flag that gave the prompt.
void check_prompt(const std::vector<int64_t>& prompt, int64_t tokens, const ModelConfig& config, const char* from);

}  // namespace sinter
