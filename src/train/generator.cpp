#include "train/generator.h"

#include "core/range.h"
#include "ops/ops.h"

namespace sinter {

Generator::Generator(const Model& model, const ModelConfig& c, const Precision& precision, int64_t capacity,
                     DeviceType device)
    : model_(model),
      precision_(precision),
      device_(device),
      vocab_(c.vocab),
      cache_(c, 1, capacity, precision.compute.value_or(precision.master), device) {}

// Of what follows the tokens; they are read in chunks.
std::vector<double> Generator::next_logits(std::span<const int64_t> tokens) {
  NoGrad off;
  Autocast types(precision_.compute);
  Scoped math(context().math, precision_.math);
  Tensor logits;
  while (!tokens.empty()) {
    auto now = tokens.first(std::min(tokens.size(), size_t(chunk)));
    tokens = tokens.subspan(now.size());
    Tensor ids = from_vector(std::vector<int64_t>(now.begin(), now.end()), {1, int64_t(now.size())}, device_);
    logits = model_.logits_after(cache_, ids, 1);
  }
  return device_ == DeviceType::meta ? std::vector<double>(size_t(vocab_)) : to_vector(logits);
}

void Generator::read(const std::vector<int64_t>& prompt) {
  Range range("prompt");
  cache_.truncate(0);
  logits_ = next_logits(prompt);
  prompt_ = int64_t(prompt.size());
}

void Generator::continue_with(int64_t tokens, const SamplingOptions& sampling, uint64_t sequence, const Taken& taken) {
  check(prompt_ > 0, "a generator continues a prompt: read one first");
  Range range("continue");
  cache_.truncate(prompt_);
  std::vector<double> logits = logits_;
  for (int64_t i = 0; i < tokens; ++i) {
    int64_t token = sample(logits, sampling, sequence, uint64_t(i));
    if (!taken(token) || i + 1 == tokens) return;
    logits = next_logits(std::span(&token, 1));
  }
}

void check_prompt(const std::vector<int64_t>& prompt, int64_t tokens, const ModelConfig& c, const char* from) {
  check(!prompt.empty(), "{}: the prompt is empty, and a model continues something; give at least one token", from);
  for (size_t i = 0; i < prompt.size(); ++i)
    check(prompt[i] >= 0 && prompt[i] < c.vocab,
          "{}: token id {} at position {} is outside the model's vocabulary of {} (0 to {})", from, prompt[i], i,
          c.vocab, c.vocab - 1);
  check(tokens >= 1, "--tokens must be at least 1, not {}", tokens);
  int64_t n = int64_t(prompt.size());
  check(n < c.ctx, "{}: the prompt has {} tokens, but the model has {} positions; give at most {}, or a larger --ctx",
        from, n, c.ctx, c.ctx - 1);
  check(tokens <= c.ctx - n,
        "--tokens {}: with the {} of the prompt that is more than the model's {} positions; give --tokens {} at most, "
        "or a larger --ctx",
        tokens, n, c.ctx, c.ctx - n);
}

}  // namespace sinter
