// The model's shape: parameter counts, names, FLOPs, causality.
#include "nn/transformer.h"

#include <set>

#include "ops/dispatch.h"
#include "ops/ops.h"
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {
namespace {

struct Built {
  Parameters parameters;
  std::unique_ptr<Model> model;
  Built(const ModelConfig& c, DeviceType device, DType type)
      : parameters({device, type, {}, 0}), model(make_transformer(c, parameters)) {
    parameters.allocate();
  }
};

Built build(const ModelConfig& c, DeviceType device, DType type = DType::f32) { return Built(c, device, type); }

struct SizeFacts {
  const char* name;
  int64_t parameters, tensors;
  double forward_tflop[4];  // at batch 4, ctx 128, 256, 512, 1024
  double last_digit[4];     // of the published figure
};

const SizeFacts published[] = {
    {"small", 128625408, 111, {.126, .257, .534, 1.145}, {1e-3, 1e-3, 1e-3, 1e-3}},
    {"medium", 423183360, 219, {.429, .871, 1.79, 3.80}, {1e-3, 1e-3, 1e-2, 1e-2}},
    {"large", 969411840, 327, {.99, 2.01, 4.11, 8.61}, {1e-2, 1e-2, 1e-2, 1e-2}},
    {"xl", 1998235200, 435, {2.05, 4.14, 8.44, 17.5}, {1e-2, 1e-2, 1e-2, 1e-1}},
    {"2.7B", 3406809600, 291, {3.48, 7.01, 14.2, 29.1}, {1e-2, 1e-2, 1e-1, 1e-1}},
};

void PrintTo(const SizeFacts& f, std::ostream* out) { *out << f.name; }

class KnownSize : public testing::TestWithParam<SizeFacts> {};

TEST_P(KnownSize, HasItsParametersAndTensors) {
  Built b = build(known_size(GetParam().name), DeviceType::meta);
  EXPECT_EQ(b.parameters.count(), GetParam().parameters);
  EXPECT_EQ(int64_t(b.parameters.entries().size()), GetParam().tensors);
}

struct FlopCount : Interceptor {
  double matmul = 0;
  void called(const OpCall& used, TensorPtrs, const Outputs& out) override {
    if (used.op.cost) matmul += used.op.cost(used, out).matmul_flops;
  }
};

TEST_P(KnownSize, CostsWhatTheTableSays) {
  const int64_t contexts[] = {128, 256, 512, 1024};
  for (int i = 0; i < 8; ++i) {
    ModelConfig c = known_size(GetParam().name);
    c.ctx = contexts[i % 4];
    c.attention.kind = i < 4 ? AttentionKind::naive : AttentionKind::flash;  // counted alike, in full
    Built b = build(c, DeviceType::meta);
    Tensor tokens = empty({4, c.ctx}, DType::i64, DeviceType::meta);
    NoGrad off;
    FlopCount count;
    Listening on(count);
    b.model->logits(tokens);
    EXPECT_NEAR(count.matmul * 1e-12, GetParam().forward_tflop[i % 4], 0.55 * GetParam().last_digit[i % 4])
        << "ctx " << c.ctx;
    // And by the closed form: two per weight and token, and two products of T·T·d per layer.
    double tokens_n = 4.0 * double(c.ctx), d = double(c.d_model), layers = double(c.layers);
    double weights = layers * (4 * d * d + 3 * d * double(c.d_ff)) + d * double(c.vocab);
    EXPECT_DOUBLE_EQ(count.matmul, 2 * tokens_n * weights + layers * 4 * tokens_n * double(c.ctx) * d);
  }
}

// A backward pass costs two products for every forward one, where attention is spelled out.
TEST(Transformer, BackwardCostsTwiceTheForward) {
  ModelConfig c = known_size("small");
  c.attention.kind = AttentionKind::naive;
  c.ctx = 128;
  Built b = build(c, DeviceType::meta);
  Tensor tokens = empty({4, c.ctx}, DType::i64, DeviceType::meta);
  FlopCount forward, both;
  Listening on(both);
  Tensor loss;
  {
    Listening too(forward);
    loss = cross_entropy(b.model->logits(tokens), tokens);
  }
  backward(loss);
  EXPECT_DOUBLE_EQ(both.matmul, 3 * forward.matmul);
}

INSTANTIATE_TEST_SUITE_P(Published, KnownSize, testing::ValuesIn(published), [](const auto& info) {
  std::string name = info.param.name;
  return name == "2.7B" ? "two_point_seven_B" : name;
});

TEST(Transformer, NamesAPersonWouldGuess) {
  ModelConfig c = known_size("tiny");
  Built b = build(c, DeviceType::meta);
  std::set<std::string> names;
  for (const auto& e : b.parameters.entries()) names.insert(e.name);
  for (const char* name :
       {"embedding.weight", "layers.3.attn.q.weight", "layers.3.attn.k.weight", "layers.3.attn.v.weight",
        "layers.3.attn.o.weight", "layers.0.norm1.weight", "layers.0.norm2.weight", "layers.0.ffn.w1.weight",
        "layers.0.ffn.w2.weight", "layers.0.ffn.w3.weight", "norm.weight", "head.weight"})
    EXPECT_EQ(names.count(name), 1u) << name;
  EXPECT_EQ(b.parameters.find("layers.3.attn.q.weight").dims, (Dims{256, 256}));
  EXPECT_EQ(b.parameters.find("layers.0.ffn.w2.weight").dims, (Dims{256, 1024}));
  EXPECT_EQ(b.parameters.find("embedding.weight").dims, (Dims{10000, 256}));
}

ModelConfig little() {
  ModelConfig c;
  c.d_model = 16, c.d_ff = 24, c.layers = 2, c.heads = 2, c.vocab = 19, c.ctx = 6;
  return c;
}

TEST(Transformer, SeesNoLaterToken) {
  Built b = build(little(), DeviceType::cpu, DType::f64);
  NoGrad off;
  Tensor one = b.model->logits(from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu));
  Tensor two = b.model->logits(from_vector<int64_t>({1, 2, 3, 4, 9, 8}, {1, 6}, DeviceType::cpu));
  EXPECT_TRUE(near(slice(one, 1, 0, 4), slice(two, 1, 0, 4), 0, 1e-13));
  EXPECT_FALSE(near(slice(one, 1, 4, 2), slice(two, 1, 4, 2), 0, 1e-3));
}

TEST(Transformer, RowsOfABatchDoNotMix) {
  Built b = build(little(), DeviceType::cpu, DType::f64);
  NoGrad off;
  Tensor alone = b.model->logits(from_vector<int64_t>({3, 1, 4, 1, 5, 9}, {1, 6}, DeviceType::cpu));
  Tensor both = b.model->logits(from_vector<int64_t>({2, 7, 1, 8, 2, 8, 3, 1, 4, 1, 5, 9}, {2, 6}, DeviceType::cpu));
  EXPECT_TRUE(near(alone, slice(both, 0, 1, 1), 0, 1e-13));
}

TEST(Transformer, PositionsMatter) {
  Built b = build(little(), DeviceType::cpu, DType::f64);
  NoGrad off;
  Tensor logits = b.model->logits(from_vector<int64_t>({3, 5, 5, 5, 5, 5}, {1, 6}, DeviceType::cpu));
  EXPECT_FALSE(near(slice(logits, 1, 2, 1), slice(logits, 1, 3, 1), 0, 1e-6)) << "RoPE is at work";
}

// The same numbers as two parameters that hold the same, and the gradient is the sum of theirs.
TEST(Transformer, TiedEmbeddingsAreOneParameter) {
  ModelConfig c = little();
  Built two = build(c, DeviceType::cpu, DType::f64);
  c.tied_embeddings = true;
  Built one = build(c, DeviceType::cpu, DType::f64);
  EXPECT_EQ(two.parameters.count() - one.parameters.count(), 19 * 16);
  EXPECT_EQ(one.parameters.entries().size() + 1, two.parameters.entries().size());
  for (const auto& e : one.parameters.entries()) copy_into(two.parameters.find(e.name).value, e.value);
  copy_into(two.parameters.find("head.weight").value, one.parameters.find("embedding.weight").value);
  Tensor tokens = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto gradient = [&](Built& b, const char* name) {
    return to_vector(b.parameters.role("gradient").view(b.parameters.find(name)));
  };
  for (Built* b : {&one, &two}) backward(cross_entropy(b->model->logits(tokens), tokens));
  Values sum = gradient(two, "embedding.weight"), head = gradient(two, "head.weight");
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += head[i];
  EXPECT_TRUE(near(gradient(one, "embedding.weight"), sum, 0, 1e-13));
  EXPECT_TRUE(near(gradient(one, "layers.0.ffn.w1.weight"), gradient(two, "layers.0.ffn.w1.weight"), 0, 1e-13));
}

TEST(Transformer, ShorterSequencesThanCtxWork) {
  Built b = build(little(), DeviceType::cpu, DType::f64);
  NoGrad off;
  EXPECT_EQ(b.model->logits(from_vector<int64_t>({1, 2}, {1, 2}, DeviceType::cpu)).dims(), (Dims{1, 2, 19}));
  std::string message = error_of(ErrorKind::usage, [&] {
    b.model->logits(zeros({1, 7}, DType::i64, DeviceType::cpu));
  });
  EXPECT_TRUE(mentions(message, {"split_heads", "7 positions"}));
}

}  // namespace
}  // namespace sinter
