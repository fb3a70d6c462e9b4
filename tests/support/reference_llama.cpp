#include "support/reference_llama.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "system/json.h"
#include "system/safetensors.h"

namespace sinter {
namespace {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

struct Llama {
  Json config;
  SafetensorsFile file;
  explicit Llama(const std::string& folder)
      : config(parse_json_file(folder + "/config.json")), file(folder + "/model.safetensors") {}

  int64_t size(const char* name) const { return config.at(name).get<int64_t>(); }
  double real(const char* name) const { return config.at(name).get<double>(); }

  Matrix weight(const std::string& name) const {
    const StoredTensor& t = file.at(name);
    size_t rows = t.shape.size() == 2 ? size_t(t.shape[0]) : 1, columns = size_t(t.shape.back());
    std::string_view bytes = file.bytes(t);
    Matrix m(rows, Row(columns));
    for (size_t i = 0; i < rows * columns; ++i) {
      double value = 0;
      if (t.type == "F32") {
        float f;
        std::memcpy(&f, bytes.data() + 4 * i, 4);
        value = double(f);
      } else {  // BF16
        uint16_t b;
        std::memcpy(&b, bytes.data() + 2 * i, 2);
        value = double(std::bit_cast<float>(uint32_t(b) << 16));
      }
      m[i / columns][i % columns] = value;
    }
    return m;
  }

  static Row times(const Matrix& w, const Row& x) {
    Row y(w.size());
    for (size_t o = 0; o < w.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o][i] * x[i];
    return y;
  }
  Row normed(const Row& x, const std::string& name) const {
    double square = 0;
    for (double v : x) square += v * v / double(x.size());
    Row w = weight(name)[0], y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / std::sqrt(square + real("rms_norm_eps")) * w[i];
    return y;
  }

  double frequency(int64_t i, int64_t head_dim) const {
    double plain = 1 / std::pow(real("rope_theta"), 2.0 * double(i) / double(head_dim));
    if (config.at("rope_scaling").is_null()) return plain;
    const Json& s = config.at("rope_scaling");
    double factor = s.at("factor"), low = s.at("low_freq_factor"), high = s.at("high_freq_factor"),
           original = s.at("original_max_position_embeddings"), wavelength = 2 * std::numbers::pi / plain;
    if (wavelength < original / high) return plain;
    if (wavelength > original / low) return plain / factor;
    double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * plain / factor + smooth * plain;
  }
  void rotate(Row& x, int64_t position, int64_t head_dim) const {
    auto half = size_t(head_dim / 2);
    for (size_t head = 0; head < x.size(); head += 2 * half)
      for (size_t i = 0; i < half; ++i) {
        double angle = double(position) * frequency(int64_t(i), head_dim), a = x[head + i], b = x[head + half + i];
        x[head + i] = a * std::cos(angle) - b * std::sin(angle);
        x[head + half + i] = b * std::cos(angle) + a * std::sin(angle);
      }
  }

  void attend(const std::string& layer, Matrix& stream) const {
    int64_t heads = size("num_attention_heads"), shared = size("num_key_value_heads"), d = size("hidden_size") / heads;
    Matrix wq = weight(layer + "self_attn.q_proj.weight"), wk = weight(layer + "self_attn.k_proj.weight"),
           wv = weight(layer + "self_attn.v_proj.weight"), wo = weight(layer + "self_attn.o_proj.weight");
    Matrix keys, values;
    for (size_t t = 0; t < stream.size(); ++t) {
      Row x = normed(stream[t], layer + "input_layernorm.weight");
      Row q = times(wq, x);
      rotate(q, int64_t(t), d);
      rotate(keys.emplace_back(times(wk, x)), int64_t(t), d);
      values.push_back(times(wv, x));
      Row all(q.size());
      for (int64_t h = 0; h < heads; ++h) {
        auto mine = size_t(h * d), its = size_t(h / (heads / shared) * d);
        Row p(t + 1);
        double sum = 0;
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < size_t(d); ++i) p[s] += q[mine + i] * keys[s][its + i];
          sum += p[s] = std::exp(p[s] / std::sqrt(double(d)));
        }
        for (size_t s = 0; s <= t; ++s)
          for (size_t i = 0; i < size_t(d); ++i) all[mine + i] += p[s] / sum * values[s][its + i];
      }
      Row out = times(wo, all);
      for (size_t i = 0; i < out.size(); ++i) stream[t][i] += out[i];
    }
  }
  void feed(const std::string& layer, Matrix& stream) const {
    Matrix gate = weight(layer + "mlp.gate_proj.weight"), up = weight(layer + "mlp.up_proj.weight"),
           down = weight(layer + "mlp.down_proj.weight");
    for (Row& x : stream) {
      Row normal = normed(x, layer + "post_attention_layernorm.weight"), g = times(gate, normal), u = times(up, normal);
      for (size_t i = 0; i < g.size(); ++i) g[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
      Row out = times(down, g);
      for (size_t i = 0; i < out.size(); ++i) x[i] += out[i];
    }
  }
};

}  // namespace

std::vector<double> reference_llama_logits(const std::string& folder, const std::vector<int64_t>& tokens) {
  Llama llama(folder);
  Matrix table = llama.weight("model.embed_tokens.weight"), stream;
  for (int64_t token : tokens) stream.push_back(table[size_t(token)]);
  for (int64_t i = 0; i < llama.size("num_hidden_layers"); ++i) {
    std::string layer = "model.layers." + std::to_string(i) + ".";
    // Every position's keys come from the stream before the layer: a position only reads those up to its own.
    llama.attend(layer, stream);
    llama.feed(layer, stream);
  }
  Matrix head = llama.config.at("tie_word_embeddings") == true ? table : llama.weight("lm_head.weight");
  Row all;
  for (const Row& x : stream)
    for (double l : Llama::times(head, llama.normed(x, "model.norm.weight"))) all.push_back(l);
  return all;
}

}  // namespace sinter
