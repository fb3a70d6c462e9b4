// Forward and backward of a little model as a step to trace, with the gradient it leaves.
#pragma once
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {

struct ModelStep {
  template <class Make>
  ModelStep(const ModelConfig& config, const char* dtype, Make make, DeviceType device = DeviceType::cpu) {
    TrainerOptions o;
    o.precision = precision_named(dtype);
    o.device = device;
    o.seed = 5;
    trainer.emplace(config, o, make);
    trainer->before_trace(true);
    batch = random_batch(3, config.ctx, config.vocab, 9, device);
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>&) {
    trainer->parameters().zero_grad();
    Tensor loss = trainer->loss(batch);
    trainer->backward(loss);
    return {loss.detach()};
  }
  Values gradient() { return to_vector(trainer->parameters().grad()); }

  std::optional<Trainer> trainer;
  Batch batch;
};

}  // namespace sinter
