// Logits from a cache equal those of the whole pass, however the tokens arrive.
#include "nn/key_value_cache.h"

#include "nn/transformer.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Shape {
  const char* name;
  int64_t d_model, heads, kv_heads, ctx;
};
const Shape shapes[] = {{"even heads", 48, 6, 6, 21},
                        {"grouped heads", 48, 6, 2, 33},
                        {"one key/value head", 32, 4, 1, 70},
                        {"head dimension 80", 160, 2, 1, 19},
                        {"head dimension 64", 128, 2, 2, 130}};
constexpr AttentionKind on_the_cpu[] = {AttentionKind::naive, AttentionKind::tiled, AttentionKind::flash};

struct Ready {
  ModelConfig config;
  DType computes;
  std::optional<DType> autocast;
  DeviceType device;
  Parameters parameters;
  std::unique_ptr<Model> model;

  Ready(const Shape& s, AttentionKind kind, DType master, std::optional<DType> compute = {},
        DeviceType where = DeviceType::cpu)
      : config(config_of(s, kind)),
        computes(compute.value_or(master)),
        autocast(compute),
        device(where),
        parameters({where, master, compute, 3}),
        model(make_transformer(config, parameters)) {
    parameters.allocate();
  }
  static ModelConfig config_of(const Shape& s, AttentionKind kind) {
    ModelConfig c;
    c.d_model = s.d_model, c.d_ff = 56, c.layers = 2, c.heads = s.heads, c.kv_heads = s.kv_heads;
    c.vocab = 37, c.ctx = s.ctx, c.attention.kind = kind;
    return c;
  }

  Tensor tokens(int64_t batch) const {
    Tensor t = zeros({batch, config.ctx}, DType::i64, device);
    fill_integers(t, 5, 1, 0, config.vocab);
    return t;
  }
  Tensor part(const Tensor& tokens, int64_t from, int64_t n) const { return contiguous(slice(tokens, 1, from, n)); }

  Values whole(const Tensor& tokens) const {
    NoGrad off;
    Autocast precision(autocast);
    return to_vector(cast(model->logits(tokens), DType::f64));
  }
  // The same logits from pieces of so many tokens each; the last length repeats.
  Values in_pieces(const Tensor& tokens, const std::vector<int64_t>& lengths) const {
    NoGrad off;
    Autocast precision(autocast);
    int64_t batch = tokens.size(0), n = tokens.size(1);
    KeyValueCache cache(config, batch, n, computes, device);
    Tensor all = zeros({batch, n, config.vocab}, DType::f64, device);
    for (size_t i = 0; cache.length() < n; ++i) {
      int64_t at = cache.length(), length = std::min(lengths[std::min(i, lengths.size() - 1)], n - at);
      copy_into(slice(all, 1, at, length), model->logits_after(cache, part(tokens, at, length), length));
    }
    return to_vector(all);
  }
};

size_t best(const Values& logits, size_t row, size_t vocab) {
  auto begin = logits.begin() + int64_t(row * vocab);
  return size_t(std::max_element(begin, begin + int64_t(vocab)) - begin);
}

void expect_equal(const Ready& s, int64_t batch, double bound) {
  Tensor tokens = s.tokens(batch);
  Values whole = s.whole(tokens);
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{1}, {s.config.ctx}, {7, 1}, {5, 6, 3}, {16, 16}}) {
    Values pieces = s.in_pieces(tokens, lengths);
    EXPECT_LE(normwise_error(pieces, whole), bound) << "pieces of " << lengths[0];
    auto vocab = size_t(s.config.vocab);
    for (size_t row = 0; row < whole.size() / vocab; ++row)
      ASSERT_EQ(best(pieces, row, vocab), best(whole, row, vocab)) << "row " << row;
  }
}

TEST(KeyValueCache, PiecesGiveTheLogitsOfTheWhole) {
  for (const Shape& shape : shapes)
    for (AttentionKind kind : on_the_cpu) {
      SCOPED_TRACE(fmt::format("{}, {}", shape.name, name_of(kind)));
      expect_equal(Ready(shape, kind, DType::f32), 2, 1e-5);
    }
  expect_equal(Ready(shapes[1], AttentionKind::naive, DType::f64), 3, 1e-13);
}

TEST(KeyValueCache, InSixteenBitsTheyDifferByRoundingAlone) {
  for (DType type : {DType::bf16, DType::f16})
    for (const Shape& shape : {shapes[1], shapes[3]}) {
      Ready s(shape, AttentionKind::flash, DType::f32, type);
      Tensor tokens = s.tokens(2);
      EXPECT_LE(normwise_error(s.in_pieces(tokens, {6, 1}), s.whole(tokens)), 8 * roundoff(type)) << name_of(type);
    }
}

TEST(KeyValueCacheGpu, PiecesGiveTheLogitsOfTheWhole) {
  SINTER_REQUIRE_GPU();
  for (const Shape& shape : shapes)
    for (AttentionKind kind : {AttentionKind::naive, AttentionKind::flash, AttentionKind::portable}) {
      SCOPED_TRACE(fmt::format("{}, {}", shape.name, name_of(kind)));
      expect_equal(Ready(shape, kind, DType::f32, {}, DeviceType::cuda), 2, 1e-5);
    }
  Ready s(shapes[4], AttentionKind::flash, DType::f32, DType::bf16, DeviceType::cuda);
  Tensor tokens = s.tokens(2);
  EXPECT_LE(normwise_error(s.in_pieces(tokens, {6, 1}), s.whole(tokens)), 8 * roundoff(DType::bf16));
}

TEST(KeyValueCache, TheLastPositionsAloneAreTheSame) {
  Ready s(shapes[1], AttentionKind::flash, DType::f64);
  Tensor tokens = s.tokens(2);
  NoGrad off;
  KeyValueCache cache(s.config, 2, s.config.ctx, DType::f64, DeviceType::cpu);
  Tensor last = s.model->logits_after(cache, tokens, 3);
  EXPECT_EQ(last.dims(), (Dims{2, 3, s.config.vocab}));
  EXPECT_TRUE(near(last, slice(s.model->logits(tokens), 1, s.config.ctx - 3, 3), 0, 1e-13));
}

TEST(KeyValueCache, WhatIsForgottenIsComputedAnew) {
  Ready s(shapes[0], AttentionKind::flash, DType::f64);
  Tensor tokens = s.tokens(1);
  NoGrad off;
  KeyValueCache cache(s.config, 1, 10, DType::f64, DeviceType::cpu);
  s.model->logits_after(cache, s.part(tokens, 0, 4), 1);
  s.model->logits_after(cache, s.part(tokens, 9, 6), 1);
  cache.truncate(4);
  Tensor again = s.model->logits_after(cache, s.part(tokens, 4, 6), 6);
  EXPECT_TRUE(near(again, slice(s.model->logits(s.part(tokens, 0, 10)), 1, 4, 6), 0, 1e-13));
  EXPECT_EQ(cache.length(), 10);
}

// Its memory is known before: nothing grows while tokens arrive.
TEST(KeyValueCache, TakesItsMemoryAtOnce) {
  Ready s(shapes[1], AttentionKind::flash, DType::f32);
  CachingAllocator& allocator = allocator_of(DeviceType::cpu);
  int64_t before = allocator.stats().allocated;
  KeyValueCache cache(s.config, 2, 32, DType::f32, DeviceType::cpu);
  int64_t taken = allocator.stats().allocated - before, exact = 2 * 2 * 2 * 2 * 32 * 8 * 4;
  EXPECT_GE(taken, exact);
  EXPECT_LE(taken, exact + 4 * 512);
  NoGrad off;
  Tensor tokens = s.tokens(2);
  for (int64_t i = 0; i < 32; ++i) s.model->logits_after(cache, s.part(tokens, i, 1), 1);
  EXPECT_EQ(allocator.stats().allocated - before, taken + CachingAllocator::rounded(tokens.bytes()));
}

TEST(KeyValueCache, RefusesWhatDoesNotFit) {
  Ready s(shapes[0], AttentionKind::naive, DType::f32);
  auto refusal = [](const auto& f) { return error_of(ErrorKind::usage, f); };
  auto make = [&](int64_t batch, int64_t n) { return KeyValueCache(s.config, batch, n, DType::f32, DeviceType::cpu); };
  EXPECT_TRUE(mentions(refusal([&] { make(1, 22); }), {"22", "1 to 21", "--ctx"}));
  EXPECT_TRUE(mentions(refusal([&] { make(1, 0); }), {"0 positions", "1 to 21"}));
  EXPECT_TRUE(mentions(refusal([&] { make(0, 4); }), {"at least 1"}));
  KeyValueCache cache = make(1, 4);
  Tensor tokens = s.tokens(1);
  EXPECT_TRUE(mentions(refusal([&] { s.model->logits_after(cache, s.part(tokens, 0, 1), 1); }), {"NoGrad"}));
  NoGrad off;
  s.model->logits_after(cache, s.part(tokens, 0, 3), 1);
  EXPECT_TRUE(mentions(refusal([&] { s.model->logits_after(cache, s.part(tokens, 3, 2), 1); }), {"3 of 4", "2 more"}));
  EXPECT_TRUE(mentions(refusal([&] { s.model->logits_after(cache, s.tokens(2), 1); }), {"1 sequences", "(2, 21)"}));
  EXPECT_TRUE(mentions(refusal([&] { cache.truncate(5); }), {"3 positions", "5"}));
  s.model->logits_after(cache, s.part(tokens, 3, 1), 1);
}

struct PlainModel : Model {
  Tensor logits(const Tensor& tokens) const override { return tokens; }
};
TEST(KeyValueCache, AModelThatKnowsNothingOfItSaysSo) {
  Ready s(shapes[0], AttentionKind::naive, DType::f32);
  KeyValueCache cache(s.config, 1, 4, DType::f32, DeviceType::cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { PlainModel().logits_after(cache, {}, 1); }),
                       {"cannot generate", "logits_after"}));
}

}  // namespace
}  // namespace sinter
