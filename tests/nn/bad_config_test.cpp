// Configurations that cannot be built, and batches that do not fit the model, with reason and remedy.
#include "nn/transformer.h"
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {
namespace {

ModelConfig good() {
  ModelConfig c;
  c.d_model = 32, c.d_ff = 48, c.layers = 2, c.heads = 4, c.vocab = 61, c.ctx = 12;
  return c;
}

struct BadConfig {
  const char* name;
  void (*change)(ModelConfig&);
  std::vector<std::string> must_mention;
};
void PrintTo(const BadConfig& c, std::ostream* out) { *out << c.name; }

const std::vector<BadConfig>& bad_configs() {
  static const std::vector<BadConfig> all = {
      {"heads_not_dividing", [](ModelConfig& c) { c.heads = 5; }, {"--heads 5", "--d-model 32", "4"}},
      {"more_heads_than_width", [](ModelConfig& c) { c.heads = 64; }, {"--heads 64", "--d-model 32"}},
      {"odd_head_dimension", [](ModelConfig& c) { c.d_model = 36, c.heads = 4; }, {"36", "9", "odd", "--heads"}},
      {"ctx_0", [](ModelConfig& c) { c.ctx = 0; }, {"--ctx", "0"}},
      {"vocab_0", [](ModelConfig& c) { c.vocab = 0; }, {"--vocab", "0"}},
      {"layers_0", [](ModelConfig& c) { c.layers = 0; }, {"--layers", "0"}},
      {"heads_0", [](ModelConfig& c) { c.heads = 0; }, {"--heads", "0"}},
      {"d_model_negative", [](ModelConfig& c) { c.d_model = -32; }, {"--d-model", "-32"}},
      {"kv_heads_not_dividing", [](ModelConfig& c) { c.kv_heads = 3; }, {"--kv-heads 3", "--heads 4", "2"}},
      {"more_kv_heads_than_heads", [](ModelConfig& c) { c.kv_heads = 8; }, {"--kv-heads 8", "--heads 4", "is 4"}},
      {"kv_heads_negative", [](ModelConfig& c) { c.kv_heads = -1; }, {"--kv-heads", "-1"}},
      {"d_ff_0", [](ModelConfig& c) { c.d_ff = 0; }, {"--d-ff", "0"}},
  };
  return all;
}

class BadModel : public testing::TestWithParam<BadConfig> {};

TEST_P(BadModel, IsRefusedBeforeAnyWork) {
  ModelConfig c = good();
  validate(c);
  GetParam().change(c);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { validate(c); }), GetParam().must_mention));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { Trainer(c, {}, make_transformer); }), GetParam().must_mention));
}

INSTANTIATE_TEST_SUITE_P(Configs, BadModel, testing::ValuesIn(bad_configs()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BadModels, UnknownSizeListsTheKnown) {
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { known_size("huge"); }),
                       {"--size huge", "tiny", "small", "2.7B", "--d-model"}));
  EXPECT_THROW(known_size(""), Error);
  for (const ModelConfig& c : known_sizes()) EXPECT_NO_THROW(validate(c)) << c.name;
}

TEST(BadModels, NearestHeadCountDivides) {
  for (int64_t heads = 1; heads < 40; ++heads) {
    ModelConfig c = good();
    c.heads = heads;
    if (c.d_model % heads == 0) continue;
    std::string message = error_of(ErrorKind::usage, [&] { validate(c); });
    int64_t nearest = std::stoll(message.substr(message.rfind(' ')));
    EXPECT_EQ(c.d_model % nearest, 0) << message;
  }
}

TEST(BadBatches, AreRefused) {
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { random_batch(0, 4, 10, 0, DeviceType::cpu); }), {"--batch", "0"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { random_batch(4, 0, 10, 0, DeviceType::cpu); }), {"--ctx", "0"}));
  auto from = [](std::vector<int64_t> tokens, std::vector<int64_t> targets) {
    return error_of(ErrorKind::usage, [&] { batch_from_host(tokens, targets, 1, 2, 10, DeviceType::cpu); });
  };
  EXPECT_TRUE(mentions(from({1, 10}, {1, 2}), {"10", "--vocab 11"}));
  EXPECT_TRUE(mentions(from({1, 2}, {99, 2}), {"99", "vocabulary of 10", "--vocab 100"}));
  EXPECT_TRUE(mentions(from({-1, 2}, {1, 2}), {"-1"}));
  EXPECT_TRUE(mentions(from({1, 2, 3}, {1, 2, 3}), {"3 values", "(1, 2)"}));
}

TEST(BadPrecisions, AreRefused) {
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { precision_named("fp8"); }), {"--dtype fp8", "bf16"}));
  TrainerOptions o;
  o.precision = precision_named("tf32");
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { Trainer(good(), o, make_transformer); }), {"tf32", "--dtype fp32"}));
}

TEST(BadTokens, ReachTheUserWithTheirPlace) {
  TrainerOptions o;
  Trainer t(good(), o, make_transformer);
  Batch b{from_vector<int64_t>({1, 61, 1, 2}, {2, 1, 2}, DeviceType::cpu)};
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { t.run(Pass::evaluate, b); }),
                       {"embedding", "61", "--vocab", "in forward"}));
}

}  // namespace
}  // namespace sinter
