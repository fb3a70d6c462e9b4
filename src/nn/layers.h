// The building blocks of the Transformer, each a few lines over ops.
#pragma once
#include "nn/model.h"

namespace sinter {

// One RoPE for all layers: tables of cos and sin, position × half the head dimension.
struct Rope {
  Tensor cos, sin;
  Rope(const ModelConfig& c, const Parameters::Options& where);
};

struct RmsNorm {
  std::string name;  // of its range: the last component of the parameter's
  Tensor weight;
  double eps;
  RmsNorm(Parameters& p, const std::string& name, int64_t d, double eps);
  Tensor operator()(const Tensor& x) const;
};

struct Linear {
  std::string name;
  Tensor weight;  // (out, in), no bias
  Linear(Parameters& p, const std::string& name, int64_t in, int64_t out);
  Tensor operator()(const Tensor& x) const;
};

struct Attention {
  int64_t heads, kv_heads;
  AttentionOptions how;
  const Rope* rope;
  Tensor qkv;  // q | k | v, one GEMM
  Linear o;
  Attention(Parameters& p, const std::string& prefix, const ModelConfig& c, const Rope& rope);
  // With a cache x holds the positions after those in it, and it then has theirs too.
  Tensor operator()(const Tensor& x, LayerCache* cache = nullptr) const;
};

struct FeedForward {
  Tensor gate_up;  // w1 | w3, one GEMM
  Linear w2;
  FeedForward(Parameters& p, const std::string& prefix, int64_t d, int64_t d_ff);
  Tensor operator()(const Tensor& x) const;
};

}  // namespace sinter
