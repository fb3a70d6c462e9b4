// A little Transformer with its parameters allocated, and what changes of them.
#pragma once
#include "nn/transformer.h"

namespace sinter {

inline ModelConfig little_transformer() {
  ModelConfig c;
  c.d_model = 16, c.d_ff = 24, c.layers = 3, c.heads = 2, c.vocab = 19, c.ctx = 6;
  return c;
}

struct Built {
  Parameters parameters;
  std::unique_ptr<Model> model;
  Built(const ModelConfig& c, const Parameters::Options& options, const std::vector<std::string>& frozen)
      : parameters(options), model(make_transformer(c, parameters)) {
    for (const auto& name : frozen) parameters.freeze(name);
    parameters.allocate();
  }
};
inline Built build(const ModelConfig& c, const Parameters::Options& options = {},
                   const std::vector<std::string>& frozen = {}) {
  return Built(c, options, frozen);
}

using Names = std::vector<std::string>;
// Which units' versions change.
struct Versions {
  const Parameters& p;
  const Parameters::Role& role;
  std::vector<uint32_t> before = now();
  std::vector<uint32_t> now() const {
    std::vector<uint32_t> v;
    for (const auto& u : p.units()) v.push_back(role.version(u));
    return v;
  }
  Names changed() {
    std::vector<uint32_t> after = now();
    Names names;
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] != before[i]) names.push_back(p.units()[i].name);
    before = after;
    return names;
  }
};

}  // namespace sinter
