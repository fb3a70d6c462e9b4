// A continuation is what the whole pass would give, token by token; a sample does not depend on the others.
#include "train/generator.h"

#include "nn/transformer.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Little {
  ModelConfig config;
  Precision precision;
  DeviceType device;
  Parameters parameters;
  std::unique_ptr<Model> model;
  explicit Little(DeviceType where = DeviceType::cpu, const char* dtype = "fp32", int64_t ctx = 40)
      : precision(precision_named(dtype)),
        device(where),
        parameters({where, precision.master, precision.compute, 11}),
        model(make_transformer(config = config_of(ctx), parameters)) {
    parameters.allocate();
  }
  static ModelConfig config_of(int64_t ctx) {
    ModelConfig c;
    c.d_model = 32, c.d_ff = 48, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.vocab = 29, c.ctx = ctx;
    return c;
  }
  Generator generator(int64_t capacity) const { return {*model, config, precision, capacity, device}; }
};

using Tokens = std::vector<int64_t>;
Tokens continued(Generator& g, int64_t n, const SamplingOptions& o, uint64_t sample) {
  Tokens tokens;
  g.continue_with(n, o, sample, [&](int64_t t) {
    tokens.push_back(t);
    return true;
  });
  return tokens;
}

// Without a cache: the whole sequence again for every token.
Tokens slowly(const Little& m, Tokens sequence, int64_t n, const SamplingOptions& o, uint64_t sample_number) {
  NoGrad off;
  Tokens tokens;
  for (int64_t i = 0; i < n; ++i) {
    int64_t length = int64_t(sequence.size());
    Values all = to_vector(m.model->logits(from_vector(sequence, {1, length}, m.device)));
    Values last(all.end() - m.config.vocab, all.end());
    tokens.push_back(sample(last, o, sample_number, uint64_t(i)));
    sequence.push_back(tokens.back());
  }
  return tokens;
}

const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6};
const SamplingOptions lively{.temperature = 1.3, .top_k = 20, .top_p = 0.95, .seed = 8};

TEST(Generator, GivesWhatTheWholePassWould) {
  Little m(DeviceType::cpu, "fp64");
  Generator g = m.generator(40);
  g.read(prompt);
  for (const SamplingOptions& o : {SamplingOptions{.temperature = 0}, SamplingOptions{.seed = 4}, lively})
    EXPECT_EQ(continued(g, 32, o, 0), slowly(m, prompt, 32, o, 0));
}

TEST(Generator, SamplesDoNotDependOnOneAnother) {
  Little m;
  Generator g = m.generator(30), alone = m.generator(30);
  g.read(prompt);
  Tokens first = continued(g, 20, lively, 0), second = continued(g, 20, lively, 1);
  EXPECT_NE(first, second);
  alone.read(prompt);
  EXPECT_EQ(continued(alone, 20, lively, 1), second);
  EXPECT_EQ(continued(g, 20, lively, 0), first) << "after another";
}

TEST(Generator, ALongPromptIsReadInChunks) {
  int64_t n = 2 * Generator::chunk + 7;
  Little m(DeviceType::cpu, "fp64", n + 5);
  Tokens tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(i * i % 29);
  Generator g = m.generator(n + 5);
  g.read(tokens);
  EXPECT_EQ(continued(g, 5, lively, 0), slowly(m, tokens, 5, lively, 0));
}

TEST(Generator, EndsWhenItIsTold) {
  Little m;
  Generator g = m.generator(30);
  g.read(prompt);
  int calls = 0;
  g.continue_with(20, lively, 0, [&](int64_t) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
}

TEST(Generator, SixteenBitsWork) {
  for (const char* dtype : {"bf16", "fp16"}) {
    Little m(DeviceType::cpu, dtype);
    Generator g = m.generator(40);
    g.read(prompt);
    EXPECT_EQ(continued(g, 32, lively, 0).size(), 32u) << dtype;
  }
}

TEST(GeneratorGpu, TheSameTokensAsOnTheCpu) {
  SINTER_REQUIRE_GPU();
  Little cpu, gpu(DeviceType::cuda);
  Generator a = cpu.generator(40), b = gpu.generator(40);
  a.read(prompt), b.read(prompt);
  for (uint64_t s = 0; s < 3; ++s) EXPECT_EQ(continued(a, 32, lively, s), continued(b, 32, lively, s));
}

TEST(Generator, RefusesPromptsWithTheRemedy) {
  ModelConfig c = Little::config_of(40);
  auto refusal = [&](const Tokens& tokens, int64_t n) {
    return error_of(ErrorKind::usage, [&] { check_prompt(tokens, n, c, "--prompt"); });
  };
  EXPECT_TRUE(mentions(refusal({}, 5), {"--prompt", "empty"}));
  EXPECT_TRUE(mentions(refusal({1, 29}, 5), {"token id 29", "position 1", "vocabulary of 29"}));
  EXPECT_TRUE(mentions(refusal({-1}, 5), {"token id -1"}));
  EXPECT_TRUE(mentions(refusal(Tokens(40, 1), 5), {"40 tokens", "40 positions", "at most 39", "--ctx"}));
  EXPECT_TRUE(mentions(refusal(Tokens(30, 1), 11), {"--tokens 11", "30", "--tokens 10", "--ctx"}));
  EXPECT_TRUE(mentions(refusal({1}, 0), {"--tokens", "at least 1"}));
  check_prompt(Tokens(30, 1), 10, c, "--prompt");
}

}  // namespace
}  // namespace sinter
