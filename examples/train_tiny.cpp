// Trains a small Transformer to continue a text, byte by byte, and prints how the loss falls.
#include <algorithm>
#include <cstdio>
#include <random>
#include <sinter/sinter.hpp>

using namespace sinter;

int main() try {
  std::string text;
  for (int i = 0; i < 64; ++i)
    text += "She sells sea shells by the sea shore, and the shells she sells are sea shells for sure. ";

  constexpr int64_t batch = 8, ctx = 64, vocab = 128, steps = 80;
  ModelConfig config;
  config.d_model = 128;
  config.d_ff = 512;
  config.layers = 2;
  config.heads = 4;
  config.vocab = vocab;
  config.ctx = ctx;

  TrainerOptions options;
  AdamWOptions adamw;
  adamw.max_norm = 1;  // clip the gradient
  options.optimizer = make_adamw(adamw);
  Trainer trainer(config, options, make_transformer);
  std::printf("%lld parameters, %zu bytes of text\n", static_cast<long long>(trainer.parameters().count()),
              text.size());

  std::mt19937 random(0);
  double first = 0, last = 0;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<int64_t> tokens, targets;  // each sequence starts anywhere; the target is the next byte
    for (int64_t b = 0; b < batch; ++b) {
      size_t start = random() % (text.size() - ctx - 1);
      for (size_t i = start; i < start + ctx; ++i) {
        tokens.push_back(text[i]);
        targets.push_back(text[i + 1]);
      }
    }
    Batch data = batch_from_host(tokens, targets, batch, ctx, vocab, DeviceType::cpu);
    last = trainer.step(data, cosine_schedule(step, 3e-3, 3e-4, 10, steps));
    if (step == 0) first = last;
    if (step % 10 == 0 || step == steps - 1) std::printf("step %3lld  loss %.3f\n", static_cast<long long>(step), last);
  }
  return last < first / 2 ? 0 : 1;  // it must have learnt something
} catch (const Error& e) {
  std::fprintf(stderr, "train_tiny: %s\n", e.what());
  return int(e.kind());
}
