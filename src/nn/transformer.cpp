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

Tensor Block::operator()(const Tensor& x) const {
  Range range(name_.c_str());
  Tensor h = x + attention_(norm1_(x));
  return h + feed_forward_(norm2_(h));
}

TransformerLM::TransformerLM(const ModelConfig& c, Parameters& p)
    : rope_(c.ctx, c.head_dim(), c.rope_theta, p.options()) {
  p.begin_unit("embedding");
  embedding_ = p.add({"embedding.weight", {c.vocab, c.d_model}, {Init::truncated_normal, 1}});
  blocks_.reserve(size_t(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) {
    p.begin_unit("layers." + std::to_string(i));
    blocks_.emplace_back(p, i, c, rope_);
  }
  p.begin_unit("head");
  norm_.emplace(p, "norm", c.d_model, c.norm_eps);
  head_.emplace(p, "head", c.d_model, c.vocab);
}

Tensor TransformerLM::logits(const Tensor& tokens) const {
  Tensor x = [&] {
    Range range("embedding");
    return embedding(embedding_, tokens);
  }();
  for (const Block& block : blocks_) x = block(x);
  return (*head_)((*norm_)(x));
}

std::unique_ptr<Model> make_transformer(const ModelConfig& config, Parameters& p) {
  return std::make_unique<TransformerLM>(config, p);
}

}  // namespace sinter
