// A model with its parameters, precision and optimizer: what every experiment runs.
#pragma once
#include "compile/compiled.h"
#include "nn/model.h"
#include "optim/optimizer.h"

namespace sinter {

// --dtype: fp32, tf32, bf16, fp16 (16-bit: mixed precision with fp32 masters), and fp64 on the CPU for checks.
struct Precision {
  std::string name = "fp32";
  DType master = DType::f32;
  std::optional<DType> compute;
  MathMode math = MathMode::full;
  bool loss_scaling = false;
};
Precision precision_named(const std::string& name);
void check_supported(const Precision& p, DeviceType device);  // refuses what the device lacks, naming what it has

struct Batch {
  Tensor tokens, targets;  // (batch, ctx) int64
};
Batch random_batch(int64_t batch, int64_t ctx, int64_t vocab, uint64_t seed, DeviceType device);
// Refuses ids outside the vocabulary: the only place where ids from the host enter a GPU.
Batch batch_from_host(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets, int64_t batch,
                      int64_t ctx, int64_t vocab, DeviceType device);

struct TrainerOptions {
  Precision precision;
  DeviceType device = DeviceType::cpu;
  uint64_t seed = 0;
  AdamWOptions adamw;
  std::optional<compile::CompileOptions> compiled;  // step() is traced once and replayed
};

class Trainer {
 public:
  Trainer(const ModelConfig& config, const TrainerOptions& options, const MakeModel& make_model);
  Trainer(const Trainer&) = delete;  // the optimizer holds on to the parameters
  Trainer& operator=(const Trainer&) = delete;

  Tensor logits(const Batch& batch) const;  // without a tape
  Tensor loss(const Batch& batch) const;    // with one
  void backward(const Tensor& loss);
  void optimizer_step(double learning_rate);
  double step(const Batch& batch, double learning_rate);  // all of it; returns the loss (waits for the device)

  // Everything that outlives a step, made now: before a step is traced. A replay does not look whether masters have changed since their
  // 16-bit copies were made, nor does it say that it wrote both: that is done around it.
  void before_trace(bool with_optimizer);
  void before_replay() { parameters_.refresh_stale_low_copy(); }
  void after_replay() { parameters_.low_copy_is_current(); }

  Parameters& parameters() { return parameters_; }
  AdamW& optimizer();  // made on first use: a forward pass needs no moments

 private:
  void update();  // by the learning rate on the device; gradients are used up

  TrainerOptions options_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<compile::Compiled> compiled_;
};

}  // namespace sinter
