#include "nn/layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/range.h"
#include "ops/ops.h"

namespace sinter {
namespace {

ParameterSpec linear_spec(const std::string& name, int64_t in, int64_t out) {
  return {name + ".weight", {out, in}, Init::linear(in, out)};
}

Tensor named_linear(const char* name, const Tensor& x, const Tensor& weight, Place caller = Place::here()) {
  Range range(name, RangeKind::module, caller);
  return linear(x, weight);
}

double rope_frequency(const ModelConfig& c, int64_t pair) {
  double plain = std::pow(c.rope_theta, -2.0 * double(pair) / double(c.head_dim()));
  const RopeScaling& s = c.rope_scaling;
  if (!s.on()) return plain;
  double turns = double(s.original_ctx) * plain / (2 * std::numbers::pi);  // in the original context
  double blend = (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
  return plain * std::lerp(1 / s.factor, 1.0, std::clamp(blend, 0.0, 1.0));
}

std::string last_component(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

Rope::Rope(const ModelConfig& c, const Parameters::Options& where) {
  Range range("rope");
  Dims dims{c.ctx, c.head_dim() / 2};
  CategoryScope scope(MemoryCategory::parameter);
  cos = empty(dims, where.master, where.device);
  sin = empty(dims, where.master, where.device);
  if (where.device == DeviceType::meta) return;
  std::vector<double> frequencies, cosines, sines;
  for (int64_t i = 0; i < dims[1]; ++i) frequencies.push_back(rope_frequency(c, i));
  for (int64_t t = 0; t < c.ctx; ++t)
    for (double frequency : frequencies) {
      double angle = double(t) * frequency;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  write_host(cos, cosines);
  write_host(sin, sines);
}

RmsNorm::RmsNorm(Parameters& p, const std::string& name, int64_t d, double eps)
    : name(last_component(name)), weight(p.add({name + ".weight", {d}, {Init::ones, 0}})), eps(eps) {}
Tensor RmsNorm::operator()(const Tensor& x) const {
  Range range(name);
  return rms_norm(x, weight, eps);
}

Linear::Linear(Parameters& p, const std::string& name, int64_t in, int64_t out)
    : name(last_component(name)), weight(p.add(linear_spec(name, in, out))) {}
Tensor Linear::operator()(const Tensor& x) const { return named_linear(name.c_str(), x, weight); }

Attention::Attention(Parameters& p, const std::string& prefix, const ModelConfig& c, const Rope& rope)
    : heads(c.heads),
      kv_heads(c.key_value_heads()),
      how(c.attention),
      rope(&rope),
      qkv(p.add_group({linear_spec(prefix + ".q", c.d_model, c.d_model),
                       linear_spec(prefix + ".k", c.d_model, kv_heads * c.head_dim()),
                       linear_spec(prefix + ".v", c.d_model, kv_heads * c.head_dim())})),
      o(p, prefix + ".o", c.d_model, c.d_model) {
  DeviceType device = p.options().device;
  how.kind = choose_attention(how.kind, target_of(device), c.head_dim()).kind;
}

Tensor Attention::operator()(const Tensor& x, LayerCache* cache) const {
  Range range("attn");
  Tensor cos = rope->cos, sin = rope->sin;
  int64_t before = cache ? cache->length() : 0;
  if (before > 0) cos = slice(cos, 0, before, x.size(1)), sin = slice(sin, 0, before, x.size(1));
  Heads h = split_heads(named_linear("qkv", x, qkv), cos, sin, {heads, kv_heads, true});
  if (cache) std::tie(h.k, h.v) = cache->append(h.k, h.v);
  return o(join_heads(attend(h.q, h.k, h.v, true, how, before)));
}

FeedForward::FeedForward(Parameters& p, const std::string& prefix, int64_t d, int64_t d_ff)
    : gate_up(p.add_group({linear_spec(prefix + ".w1", d, d_ff), linear_spec(prefix + ".w3", d, d_ff)})),
      w2(p, prefix + ".w2", d_ff, d) {}

Tensor FeedForward::operator()(const Tensor& x) const {
  Range range("ffn");
  return w2(swiglu(named_linear("gate_up", x, gate_up)));
}

}  // namespace sinter
