// GEMMs of one input whose weights lie one after the other become one: what they compute stays, and where
// it would not, nothing is done.
#include "autograd/tape.h"
#include "compile/compiled.h"
#include "compile/passes.h"
#include "nn/layers.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "support/generated.h"
#include "support/graph_checks.h"
#include "support/model_step.h"
#include "support/random_program.h"
#include "support/targets.h"
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {
namespace {

constexpr DeviceType cpu = DeviceType::cpu;

// A block that declares q, k, v, and gate and up, each by itself.
class Apart : public Model {
 public:
  Apart(const ModelConfig& c, Parameters& p)
      : heads_(c.heads), embedding_(p.add({"embedding.weight", {c.vocab, c.d_model}, {Init::truncated_normal, 1}})) {
    p.begin_unit("block");
    norms_.emplace_back(p, "norm1", c.d_model, c.norm_eps);
    norms_.emplace_back(p, "norm2", c.d_model, c.norm_eps);
    for (const char* name : {"q", "k", "v", "o"}) attention_.emplace_back(p, name, c.d_model, c.d_model);
    for (const char* name : {"gate", "up"}) feed_.emplace_back(p, name, c.d_model, c.d_ff);
    feed_.emplace_back(p, "down", c.d_ff, c.d_model);
    p.begin_unit("head");
    feed_.emplace_back(p, "head", c.d_model, c.vocab);
  }

  Tensor logits(const Tensor& tokens) const override {
    Tensor x = embedding(embedding_, tokens), y = norms_[0](x);
    int64_t B = x.size(0), T = x.size(1), d = x.size(2), D = d / heads_;
    auto heads = [&](int i) { return transpose(reshape(attention_[size_t(i)](y), {B, T, heads_, D}), 1, 2); };
    Tensor a = attention(heads(0), heads(1), heads(2), {1 / std::sqrt(double(D)), true});
    x = x + attention_[3](reshape(transpose(a, 1, 2), {B, T, d}));
    y = norms_[1](x);
    return feed_[3](x + feed_[2](silu(feed_[0](y)) * feed_[1](y)));
  }

 private:
  int64_t heads_;
  Tensor embedding_;
  std::vector<RmsNorm> norms_;
  std::vector<Linear> attention_, feed_;
};

struct ApartStep : ModelStep {
  explicit ApartStep(const char* dtype, DeviceType device = cpu, std::optional<compile::CompileOptions> compiled = {})
      : ModelStep(
            {.d_model = 32, .d_ff = 48, .layers = 1, .heads = 4, .vocab = 61, .ctx = 12}, dtype,
            [](const ModelConfig& m, Parameters& p) { return std::make_unique<Apart>(m, p); }, device,
            std::move(compiled)) {}
};

int products_in(const compile::Graph& g) {
  return int(std::count_if(g.nodes.begin(), g.nodes.end(),
                           [](const auto& n) { return n.op->kernel == &KernelTable::matmul; }));
}

TEST(Join, AModelThatDeclaresItsWeightsApart) {
  for (const char* dtype : {"fp32", "bf16"}) {
    ApartStep model(dtype), exact("fp64");
    model.run(), exact.run();
    Values eager = model.gradient(), reference = exact.gradient();
    auto step = compiled_for_cuda(model.graph());
    EXPECT_EQ(products_in(step->graph()), 3 * 5) << "q|k|v, o, gate|up, down, head, each forward and twice backward";
    expect_reads_of_written(step->graph());
    GeneratedKernels kernels;
    kernels.add(*step);
    kernels.build();
    ASSERT_FALSE(HasFatalFailure());
    fill(model.trainer->parameters().grad(), 0);
    kernels.run(*step);
    if (dtype == std::string("fp32")) {
      EXPECT_LE(normwise_error(model.gradient(), eager), 1e-5);
    }
    EXPECT_LE(normwise_error(model.gradient(), reference), 1.1 * normwise_error(eager, reference)) << dtype;
  }
}

// Joined gradients go into their updates as any other: planned only, there is no such kernel here.
TEST(Join, LeavesNothingToStoreOfGradientsThatAreFolded) {
  MetaTarget target(hopper_gpu());
  ApartStep model("bf16", DeviceType::meta, compile::CompileOptions{});
  model.trainer->run(Pass::step, model.batch);
  int folded = 0;
  const compile::Compiled& step = *model.trainer->replayed()[0].compiled;
  for (const compile::Node& n : step.compilation().executable->graph().nodes) folded += n.op == &ops::adamw_product;
  EXPECT_EQ(folded, 4) << "q|k|v, o, gate|up, down";
}

// As for a GPU, but run here: the kernels' contract is the same.
std::unique_ptr<compile::Executable> joined(const compile::Step& step, const std::vector<Tensor>& in = {}) {
  return compiled_for_cuda(step, in, {"fuse", "rows", "beta", "fold", "early", "lanes"});
}
int products_left(const compile::Step& step) {
  auto compiled = joined(step);
  compiled->run();
  std::vector<Tensor> eager = step({});
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(near(compiled->outputs()[i], eager[i], 1e-5, 1e-5)) << i;
  return products_in(compiled->graph());
}

TEST(Join, OnlyWhatLiesTogetherAndStays) {
  Rng rng(1);
  Tensor x = random_tensor(rng, {3, 5, 16}, DType::f32), weights = random_tensor(rng, {24, 16}, DType::f32);
  auto w = [&](int64_t first, int64_t rows) { return slice(weights, 0, first, rows); };
  auto products = [&](const Tensor& a, const Tensor& b) {
    return products_left([&](const auto&) { return std::vector{tanh(linear(x, a)), sum(linear(x, b))}; });
  };
  EXPECT_EQ(products(w(0, 8), w(8, 4)), 1);
  EXPECT_EQ(products(w(8, 16), w(0, 8)), 1) << "whatever their order";
  EXPECT_EQ(products(w(0, 8), w(16, 8)), 2) << "a gap";
  EXPECT_EQ(products(w(0, 8), w(4, 8)), 2) << "an overlap";
  EXPECT_EQ(products(w(0, 8), w(8, 6)), 2) << "rows that are no multiple of 16 bytes";
  EXPECT_EQ(products(w(0, 8), random_tensor(rng, {8, 16}, DType::f32)), 2) << "another buffer";

  auto with = [&](const std::function<std::vector<Tensor>(const Tensor&, const Tensor&)>& f) {
    return products_left([&](const auto&) { return f(linear(x, w(0, 8)), linear(x, w(8, 8))); });
  };
  EXPECT_EQ(with([](const Tensor& a, const Tensor& b) { return std::vector{a, tanh(b)}; }), 2) << "a result";
  EXPECT_EQ(with([](const Tensor& a, const Tensor& b) {
              return std::vector{softmax(a), tanh(b)};
            }),
            2)
      << "a kernel that takes contiguous rows only";
  EXPECT_EQ(with([](const Tensor& a, const Tensor& b) {
              return std::vector{tanh(reshape(a, {-1})), tanh(b)};
            }),
            2)
      << "read across rows";
  EXPECT_EQ(with([](const Tensor& a, const Tensor& b) {
              Tensor heads = transpose(reshape(a, {3, 5, 2, 4}), 1, 2);
              return std::vector{matmul(heads, heads, false, true), swiglu(b)};
            }),
            2)
      << "one, and the product of its heads";
}

TEST(Join, NotAcrossWrites) {
  Rng rng(2);
  const Tensor start = random_tensor(rng, {5, 16}, DType::f32), first = random_tensor(rng, {16, 16}, DType::f32);
  Tensor x = copy(start), weights = copy(first);
  for (bool input : {true, false}) {
    auto step = [&](const auto&) {
      copy_into(x, start), copy_into(weights, first);
      Tensor a = tanh(linear(x, slice(weights, 0, 0, 8)));
      fill(input ? slice(x, 0, 4, 1) : slice(weights, 0, 15, 1), 2);
      return std::vector{a, tanh(linear(x, slice(weights, 0, 8, 8)))};
    };
    EXPECT_EQ(products_left(step), 2);
  }
}

TEST(Join, RandomStepsStayNearEager) {
  int fewer = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed + 30000);
    Program p = random_program(rng);
    SCOPED_TRACE("seed " + std::to_string(seed + 30000) + ": " + describe(p));
    std::vector<Tensor> leaves;
    for (const Dims& d : p.leaves) {
      leaves.push_back(tensor_of(normals(rng, d.numel()), d, DType::f32));
      require_grad(leaves.back()).grad = full(d, NAN, DType::f32, cpu);
    }
    auto step = [&](const std::vector<Tensor>&) {
      for (const Tensor& l : leaves) zero_grad(l);
      Tensor loss = loss_of(p, leaves);
      backward(loss);
      return std::vector{loss.detach()};
    };
    step({});
    std::vector<Values> expected;
    for (const Tensor& l : leaves) expected.push_back(to_vector(grad_of(l)));
    auto compiled = joined(step);
    for (const Tensor& l : leaves) fill(grad_of(l), NAN);
    compiled->run();
    for (size_t i = 0; i < leaves.size(); ++i)
      ASSERT_LE(normwise_error(to_vector(grad_of(leaves[i])), expected[i]), 1e-5) << "leaf " << i;
    expect_reads_of_written(compiled->graph());
    fewer +=
        products_in(compiled->graph()) <
        products_in(compiled_for_cuda(step, {}, {"join", "fuse", "rows", "beta", "fold", "early", "lanes"})->graph());
  }
  EXPECT_GT(fewer, 30) << "programs in which there was something to join";
}

}  // namespace
}  // namespace sinter
