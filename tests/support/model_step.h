// Forward and backward of a little model, with the gradient it leaves.
#pragma once
#include "support/values.h"
#include "train/trainer.h"

namespace sinter {

struct ModelStep {
  template <class Make>
  ModelStep(const ModelConfig& config, const char* dtype, Make make, DeviceType device = DeviceType::cpu,
            std::optional<compile::CompileOptions> compiled = {}) {
    TrainerOptions o;
    o.precision = precision_named(dtype);
    o.device = device;
    o.seed = 5;
    o.compiled = std::move(compiled);
    trainer.emplace(config, o, make);
    batch = random_batch(3, config.ctx, config.vocab, 9, device);
  }
  double run() { return item(trainer->run(Pass::forward_backward, batch)); }
  compile::Graph graph() { return trainer->trace(Pass::forward_backward, batch); }
  Values gradient() { return to_vector(trainer->parameters().grad()); }

  std::optional<Trainer> trainer;
  Batch batch;
};

}  // namespace sinter
