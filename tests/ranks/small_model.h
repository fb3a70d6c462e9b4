// The models and batches that tests of ranks train.
#pragma once
#include "nn/transformer.h"
#include "ops/ops.h"
#include "ranks/world.h"
#include "train/batch.h"

namespace sinter {

constexpr int64_t per_rank = 2, ctx = 16, vocab = 96;

inline ModelConfig small_model() {
  ModelConfig c;
  c.name = "test";
  c.d_model = 64, c.d_ff = 96, c.layers = 2, c.heads = 4, c.kv_heads = 4;
  c.vocab = vocab, c.ctx = ctx;
  c.attention.deterministic = true;
  return c;
}

// Sequences [first, first + count) of step `step`.
inline Batch sequences(int64_t step, int64_t first, int64_t count) {
  std::vector<int64_t> tokens, targets;
  for (int64_t s = first; s < first + count; ++s)
    for (int64_t t = 0; t < ctx; ++t) {
      tokens.push_back((step * 31 + s * 17 + t * t * 7 + 3) % vocab);
      targets.push_back((step * 13 + s * 29 + t * 11 + 5) % vocab);
    }
  return batch_from_host(tokens, targets, count, ctx, vocab, test_device());
}

// A model whose embedding is also its head, and of which a parameter may be frozen.
class TiedModel : public Model {
 public:
  TiedModel(const ModelConfig& c, Parameters& p, const std::string& frozen) {
    p.begin_unit("embedding");
    table_ = p.add({"table", {c.vocab, c.d_model}, {Init::truncated_normal, 0.3}});
    p.begin_unit("middle");
    middle_ = p.add({"middle", {c.d_model, c.d_model}, Init::linear(c.d_model, c.d_model)});
    norm_ = p.add({"norm", {c.d_model}, {Init::ones}});
    if (!frozen.empty()) p.freeze(frozen);
  }
  Tensor logits(const Tensor& tokens) const override {
    Tensor x = embedding(table_, tokens);
    x = rms_norm(add(x, linear(x, middle_)), norm_);
    return linear(x, table_);
  }

 private:
  Tensor table_, middle_, norm_;
};

// One that declares a parameter which it does not use.
class ForgetfulModel : public TiedModel {
 public:
  ForgetfulModel(const ModelConfig& c, Parameters& p) : TiedModel(c, p, "") {
    p.begin_unit("unused");
    p.add({"forgotten", {8}, {Init::ones}});
  }
};

}  // namespace sinter
