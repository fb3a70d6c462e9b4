#include "nn/model.h"

#include <cmath>
#include <cstdio>

namespace sinter {

const std::vector<ModelConfig>& known_sizes() {
  static const std::vector<ModelConfig> sizes = {
      {"tiny", 256, 1024, 4, 8},      {"mini", 512, 2048, 4, 8},     {"small", 768, 3072, 12, 12},
      {"medium", 1024, 4096, 24, 16}, {"large", 1280, 5120, 36, 20}, {"xl", 1600, 6400, 48, 25},
      {"2.7B", 2560, 10240, 32, 32},
  };
  return sizes;
}

const ModelConfig& known_size(const std::string& name) {
  std::string names;
  for (const ModelConfig& c : known_sizes()) {
    if (c.name == name) return c;
    names += (names.empty() ? "" : ", ") + c.name;
  }
  fail_with(ErrorKind::usage,
            "--size {}: there is no such size; choose one of {}, or give --d-model --d-ff --layers --heads", name,
            names);
}

namespace {

int64_t nearest_divisor(int64_t n, int64_t near) {
  for (int64_t d = 1;; ++d) {
    if (near > d && n % (near - d) == 0) return near - d;
    if (n % (near + d) == 0) return near + d;
  }
}

}  // namespace

RopeScaling rope_scaling_of(const std::string& text) {
  RopeScaling s;
  if (text == "none") return s;
  double original = 0;
  int end = 0;
  int read = std::sscanf(text.c_str(), "%lf,%lf,%lf,%lf%n", &s.factor, &s.low_frequency_factor,
                         &s.high_frequency_factor, &original, &end);
  check(read == 4 && size_t(end) == text.size() && original == std::floor(original) && std::abs(original) < 1e15,
        "--rope-scaling {}: must be four numbers, FACTOR,LOW,HIGH,CTX, such as Llama 3.1's 8,1,4,8192", text);
  s.original_ctx = int64_t(original);
  return s;
}

std::string text_of(const RopeScaling& s) {
  if (!s.on()) return "none";
  return fmt::format("{},{},{},{}", s.factor, s.low_frequency_factor, s.high_frequency_factor, s.original_ctx);
}

Tensor Model::logits_after(KeyValueCache&, const Tensor&, int64_t) const {
  fail_with(ErrorKind::usage, "this model cannot generate text: it does not define Model::logits_after");
}

void validate(const ModelConfig& c) {
  auto positive = [](const char* flag, int64_t v) { check(v > 0, "--{} must be at least 1, not {}", flag, v); };
  positive("d-model", c.d_model);
  positive("d-ff", c.d_ff);
  positive("layers", c.layers);
  positive("heads", c.heads);
  positive("vocab", c.vocab);
  positive("ctx", c.ctx);
  if (c.d_model % c.heads != 0)
    fail_with(ErrorKind::usage, "--heads {} does not divide --d-model {}; the nearest that does is {}", c.heads,
              c.d_model, nearest_divisor(c.d_model, c.heads));
  positive("kv-heads", c.key_value_heads());
  if (c.heads % c.key_value_heads() != 0)
    fail_with(ErrorKind::usage, "--kv-heads {} does not divide --heads {}; the nearest that does is {}", c.kv_heads,
              c.heads, c.kv_heads > c.heads ? c.heads : nearest_divisor(c.heads, c.kv_heads));
  check(c.head_dim() % 2 == 0,
        "the head dimension {} / {} = {} is odd, but RoPE rotates pairs; change --heads or --d-model", c.d_model,
        c.heads, c.head_dim());
  const RopeScaling& s = c.rope_scaling;
  check(!s.on() || (std::isfinite(s.factor) && s.factor >= 1 && s.low_frequency_factor > 0 &&
                    s.high_frequency_factor > s.low_frequency_factor && std::isfinite(s.high_frequency_factor) &&
                    s.original_ctx > 0),
        "--rope-scaling {}: the factor must be at least 1, 0 < LOW < HIGH, and CTX at least 1", text_of(s));
}

}  // namespace sinter
