// The whole model against PyTorch (tools/make_torch_fixture.py), with attention spelled out, in tiles and as one fast
// kernel: logits, loss, every gradient, five steps of AdamW with and without clipping, and of SGD.
#include "nn/transformer.h"
#include "optim/optimizer.h"
#include "support/fixtures.h"
#include "support/values.h"
#include "system/safetensors.h"

namespace sinter {
namespace {

class TorchParity : public testing::TestWithParam<AttentionKind> {
 protected:
  struct Ready {
    Parameters parameters;
    std::unique_ptr<Model> model;
    Ready(const ModelConfig& c, DType type)
        : parameters({DeviceType::cpu, type, {}, 0}), model(make_transformer(c, parameters)) {
      parameters.allocate();
    }
  };

  // The fixture's model with the fixture's initial values.
  std::unique_ptr<Ready> model_of(DType type) {
    ModelConfig c;
    c.d_model = 24, c.d_ff = 40, c.layers = 2, c.heads = 3, c.vocab = 37, c.ctx = 7;
    c.attention.kind = GetParam();
    auto r = std::make_unique<Ready>(c, type);
    for (const auto& e : r->parameters.entries()) {
      Tensor init = at("init/" + e.name);
      EXPECT_EQ(init.dims(), e.dims) << e.name;
      copy_into(e.value, init);
    }
    return r;
  }

  Tensor at(const std::string& name) {
    const StoredTensor& t = fixture_.at(name);
    Dims dims;
    for (int64_t n : t.shape) dims.push_back(n);
    return from_host(fixture_.bytes(t).data(), dims, *dtype_of_safetensors(t.type), DeviceType::cpu);
  }
  Tensor batch(const char* what, int64_t step) { return reshape(slice(at(what), 0, step, 1), {2, 7}); }

  Tensor loss_of(Ready& r, int64_t step) {
    return cross_entropy(r.model->logits(batch("tokens", step)), batch("targets", step));
  }

  void expect_pass(DType type, const std::string& suffix, double bound) {
    std::unique_ptr<Ready> ready = model_of(type);
    Ready& r = *ready;
    Tensor logits = r.model->logits(batch("tokens", 0));
    EXPECT_LE(normwise_error(to_vector(logits), to_vector(at("logits" + suffix))), bound);
    Tensor loss = loss_of(r, 0);
    EXPECT_NEAR(item(loss), item(at("loss" + suffix)), bound * item(loss));
    backward(loss);
    for (const auto& e : r.parameters.entries())
      EXPECT_LE(normwise_error(to_vector(r.parameters.role("gradient").view(e)),
                               to_vector(at("grad" + suffix + "/" + e.name))),
                bound)
          << e.name;
  }

  // Five steps, one batch each; `after_step` may look at the optimizer.
  template <class F>
  void expect_training(Ready& r, Optimizer& optimizer, const std::string& result, double bound, const F& after_step) {
    Values rates = to_vector(at("rates"));
    for (int64_t i = 0; i < 5; ++i) {
      r.parameters.zero_grad();
      backward(loss_of(r, i));
      optimizer.step(rates[size_t(i)]);
      after_step(i);
    }
    for (const auto& e : r.parameters.entries())
      EXPECT_TRUE(near(to_vector(e.value), to_vector(at(result + "/" + e.name)), bound, bound)) << e.name;
  }

  SafetensorsFile fixture_{fixture_path("transformer.safetensors")};
};

TEST_P(TorchParity, Float64LogitsLossGradients) { expect_pass(DType::f64, "", 1e-9); }
TEST_P(TorchParity, Fp32LogitsLossGradients) {
  expect_pass(DType::f32, "", 1e-5);
  expect_pass(DType::f32, "32", 1e-5);
}

TEST_P(TorchParity, AdamW) {
  std::unique_ptr<Ready> ready = model_of(DType::f64);
  Ready& r = *ready;
  AdamW optimizer(r.parameters, {});
  expect_training(r, optimizer, "adamw", 1e-9, [](int64_t) {});
}

TEST_P(TorchParity, AdamWWithClipping) {
  std::unique_ptr<Ready> ready = model_of(DType::f64);
  Ready& r = *ready;
  AdamWOptions options;
  options.max_norm = item(at("max_norm"));
  AdamW optimizer(r.parameters, options);
  Values norms = to_vector(at("norms"));
  expect_training(r, optimizer, "clipped", 1e-9, [&](int64_t i) {
    EXPECT_NEAR(optimizer.state()[state_grad_norm], norms[size_t(i)], 1e-9 * norms[size_t(i)]);
    EXPECT_EQ(optimizer.state()[state_step], double(i + 1));
  });
}

TEST_P(TorchParity, AdamWInFp32) {
  std::unique_ptr<Ready> ready = model_of(DType::f32);
  Ready& r = *ready;
  AdamW optimizer(r.parameters, {});
  expect_training(r, optimizer, "adamw", 2e-4, [](int64_t) {});  // the first steps follow the sign of tiny gradients
}

TEST_P(TorchParity, SgdWithMomentum) {
  std::unique_ptr<Ready> ready = model_of(DType::f64);
  Ready& r = *ready;
  SgdOptions options;
  options.momentum = 0.9;
  options.weight_decay = 0.01;
  Sgd optimizer(r.parameters, options);
  expect_training(r, optimizer, "sgd", 1e-9, [](int64_t) {});
}

INSTANTIATE_TEST_SUITE_P(Attention, TorchParity,
                         testing::Values(AttentionKind::naive, AttentionKind::tiled, AttentionKind::flash),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace sinter
