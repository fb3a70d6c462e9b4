#include "nn/transformer.h"

#include "core/range.h"
#include "ops/ops.h"

namespace sinter {

Block::Block(Parameters& p, int64_t index, const ModelConfig& c, const Rope& rope)
    : name_("layers." + std::to_string(index)),
      norm1_(p, name_ + ".norm1", c.d_model, c.norm_eps),
      attention_(p, name_ + ".attn", c, rope),
      norm2_(p, name_ + ".norm2", c.d_model, c.norm_eps),
      feed_forward_(p, name_ + ".ffn", c.d_model, c.d_ff) {}

Tensor Block::operator()(const Tensor& x, LayerCache* cache) const {
  Range range(name_.c_str());
  Tensor h = x + attention_(norm1_(x), cache);
  return h + feed_forward_(norm2_(h));
}

TransformerLM::TransformerLM(const ModelConfig& c, Parameters& p) : rope_(c, p.options()) {
  p.begin_unit("embedding");
  Init init = c.tied_embeddings ? Init::linear(c.d_model, c.vocab) : Init{Init::truncated_normal, 1};
  embedding_ = p.add({"embedding.weight", {c.vocab, c.d_model}, init});
  blocks_.reserve(size_t(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) {
    p.begin_unit("layers." + std::to_string(i));
    blocks_.emplace_back(p, i, c, rope_);
  }
  p.begin_unit("head");
  norm_.emplace(p, "norm", c.d_model, c.norm_eps);
  if (!c.tied_embeddings) head_.emplace(p, "head", c.d_model, c.vocab);
}

Tensor TransformerLM::residual(const Tensor& tokens, KeyValueCache* cache) const {
  Tensor x = [&] {
    Range range("embedding");
    return embedding(embedding_, tokens);
  }();
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i](x, cache ? &cache->layers[i] : nullptr);
  return x;
}

Tensor TransformerLM::head(const Tensor& x) const {
  Tensor normed = (*norm_)(x);
  if (head_) return (*head_)(normed);
  Range range("head");
  return linear(normed, embedding_);
}

Tensor TransformerLM::logits(const Tensor& tokens) const { return head(residual(tokens, nullptr)); }

Tensor TransformerLM::logits_after(KeyValueCache& cache, const Tensor& tokens, int64_t wanted) const {
  cache.check_room(tokens);
  Tensor x = residual(tokens, &cache);
  return head(contiguous(slice(x, 1, x.size(1) - wanted, wanted)));
}

std::unique_ptr<Model> make_transformer(const ModelConfig& config, Parameters& p) {
  return std::make_unique<TransformerLM>(config, p);
}

}  // namespace sinter
