// The Transformer language model of the benchmark: pre-norm, decoder only, no biases, untied embedding and head.
#pragma once
#include "nn/layers.h"

namespace sinter {

class Block {
 public:
  Block(Parameters& p, int64_t index, const ModelConfig& c, const Rope& rope);
  Tensor operator()(const Tensor& x) const;

 private:
  std::string name_;
  RmsNorm norm1_;
  Attention attention_;
  RmsNorm norm2_;
  FeedForward feed_forward_;
};

class TransformerLM : public Model {
 public:
  TransformerLM(const ModelConfig& config, Parameters& p);
  Tensor logits(const Tensor& tokens) const override;

 private:
  Rope rope_;
  Tensor embedding_;
  std::vector<Block> blocks_;
  std::optional<RmsNorm> norm_;
  std::optional<Linear> head_;
};

std::unique_ptr<Model> make_transformer(const ModelConfig& config, Parameters& p);

}  // namespace sinter
