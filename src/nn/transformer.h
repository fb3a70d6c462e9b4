// The Transformer language model of the benchmark: pre-norm, decoder only, no biases; embedding and head are untied
// unless the configuration ties them.
#pragma once
#include "nn/layers.h"

namespace sinter {

class Block {
 public:
  Block(Parameters& p, int64_t index, const ModelConfig& c, const Rope& rope);
  Tensor operator()(const Tensor& x, LayerCache* cache = nullptr) const;

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
  Tensor logits_after(KeyValueCache& cache, const Tensor& tokens, int64_t wanted) const override;

 private:
  Tensor residual(const Tensor& tokens, KeyValueCache* cache) const;
  Tensor head(const Tensor& x) const;

  Rope rope_;
  Tensor embedding_;
  std::vector<Block> blocks_;
  std::optional<RmsNorm> norm_;
  std::optional<Linear> head_;  // none: the embedding is it
};

std::unique_ptr<Model> make_transformer(const ModelConfig& config, Parameters& p);

}  // namespace sinter
