// Generated CUDA kernels, compiled as C++ and run without a GPU: what they compute is what
// the calls they stand for compute.
#include "support/generated.h"

#include "autograd/tape.h"
#include "nn/transformer.h"
#include "ops/table.h"
#include "support/model_step.h"
#include "support/random_net.h"
#include "train/trainer.h"

namespace sinter {
namespace {

constexpr DeviceType cpu = DeviceType::cpu;

struct Case {
  Net net;
  uint64_t seed;
  std::vector<Tensor> leaves;
  std::vector<Values> eager;  // loss, then gradients
  std::unique_ptr<compile::Executable> step;
};

class Generated : public testing::Test {
 protected:
  void add(const Dims& dims, DType narrow, bool row_ops, uint64_t seed) {
    Rng rng(seed);
    auto c = std::make_unique<Case>(Case{random_net(rng, dims, narrow, row_ops), seed, {}, {}, {}});
    c->leaves = leaves_of(c->net, seed, false);
    compile::Step step = step_of(c->net, c->leaves);
    c->eager = results(c->leaves, step({})[0]);
    c->step = compiled_for_cuda(step, {});
    kernels_.add(*c->step);
    cases_.push_back(std::move(c));
  }
  // 16-bit results are compared through their errors: fused calls round less often, so they are nearer.
  void expect_same() {
    kernels_.build();
    ASSERT_FALSE(HasFatalFailure());
    double eager_error = 0, error = 0;
    for (const auto& c : cases_) {
      SCOPED_TRACE("seed " + std::to_string(c->seed));
      for (const Tensor& l : c->leaves) fill(grad_of(l), NAN);
      kernels_.run(*c->step);
      std::vector<Values> got = results(c->leaves, c->step->outputs()[0]);
      bool narrow = std::any_of(c->net.types.begin(), c->net.types.end(), [](DType t) { return t != DType::f32; });
      std::vector<Values> exact;
      if (narrow) {
        std::vector<Tensor> wide = leaves_of(c->net, c->seed, true);
        exact = results(wide, step_of(c->net, wide)({})[0]);
      }
      for (size_t i = 0; i < got.size(); ++i) {
        if (!narrow) {
          EXPECT_LE(normwise_error(got[i], c->eager[i]), 1e-5) << "result " << i;
          continue;
        }
        double e = normwise_error(c->eager[i], exact[i]), g = normwise_error(got[i], exact[i]);
        EXPECT_LE(g, 2 * (e + roundoff(DType::bf16))) << "result " << i;
        eager_error += e * e, error += g * g;
      }
    }
    EXPECT_LE(std::sqrt(error), 1.1 * std::sqrt(eager_error));
  }
  int fused(bool rows) const {
    int count = 0;
    for (const auto& c : cases_)
      for (const compile::Node& n : c->step->graph().nodes)
        count += n.op == &ops::fused && (n.call.attrs.as<FusedAttrs>().program->row_length > 0) == rows;
    return count;
  }

  GeneratedKernels kernels_;
  std::vector<std::unique_ptr<Case>> cases_;
};

TEST_F(Generated, PointwiseKernelsEqualTheirCalls) {
  const Dims shapes[] = {{1}, {7}, {3, 5}, {4, 8}, {2, 3, 700}, {1, 4099}};
  for (uint64_t i = 0; i < 36; ++i)
    add(shapes[i % 6], std::array{DType::f32, DType::bf16, DType::f16}[i / 6 % 3], false, 100 + i);
  EXPECT_GT(fused(false), 60);
  expect_same();
}

TEST_F(Generated, RowKernelsEqualTheirCalls) {
  const Dims shapes[] = {{5, 4}, {2, 9, 20}, {3, 64}, {2, 6, 96}, {7, 768}, {300, 8}, {3, 1280}, {1, 2560}};
  for (uint64_t i = 0; i < 40; ++i)
    add(shapes[i % 8], std::array{DType::f32, DType::bf16, DType::f16}[i / 8 % 3], true, 200 + i);
  add({2, 12000}, DType::bf16, true, 300);
  EXPECT_GT(fused(true), 60);
  expect_same();
}

// A Transformer's step: the norms and what surrounds them.
ModelStep transformer_step(const char* dtype) {
  return {{.d_model = 32, .d_ff = 48, .layers = 3, .heads = 4, .vocab = 61, .ctx = 12, .kv_heads = 2},
          dtype,
          make_transformer};
}

TEST_F(Generated, TransformerStepsAreAsGoodAsEagerOnes) {
  for (const char* dtype : {"fp32", "bf16"}) {
    ModelStep model = transformer_step(dtype), exact = transformer_step("fp64");
    model.run(), exact.run();
    Values eager = model.gradient(), reference = exact.gradient();
    auto step = compiled_for_cuda(model.graph());
    int rows = 0;
    for (const compile::Node& n : step->graph().nodes) rows += n.op == &ops::fused;
    // Two residual adds a layer go to the norms after them; in bf16 each norm's gradient is
    // cast for the GEMMs before it.
    EXPECT_EQ(rows, std::string(dtype) == "bf16" ? 12 : 6);
    GeneratedKernels kernels;
    kernels.add(*step);
    EXPECT_LE(kernels.texts().size(), 3u) << "layers share kernels";
    kernels.build();
    ASSERT_FALSE(HasFatalFailure());
    fill(model.trainer->parameters().grad(), 0);
    kernels.run(*step);
    double eager_error = normwise_error(eager, reference), error = normwise_error(model.gradient(), reference);
    EXPECT_LE(error, 1.1 * eager_error) << dtype;
  }
}

}  // namespace
}  // namespace sinter
