// A model with its parameters, precision and optimizer: what every experiment runs.
#pragma once
#include <span>

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
  // The same by micro-batches, which weigh the same: gradient and loss are the means of theirs.
  double step(std::span<const Batch> micro_batches, double learning_rate);
  Tensor submit_step(std::span<const Batch> micro_batches,
                     double learning_rate);  // does not wait; the loss holds until the next step

  // Everything that outlives a step but gradients, made now: before a step is traced. A replay does not look whether masters have changed since their
  // 16-bit copies were made, nor does it say that it wrote both: that is done around it.
  void before_trace(bool with_optimizer);
  void before_replay() { parameters_.refresh_stale_low_copy(); }
  void after_replay() { parameters_.low_copy_is_current(); }

  Parameters& parameters() { return parameters_; }
  std::vector<const compile::Compiled*> compiled_steps() const;  // those that have run, the finishing one last
  AdamW& optimizer();                                            // made on first use: a forward pass needs no moments

 private:
  // A step of one micro-batch; or of several: all but the last, and the last.
  enum Part { whole, accumulate, finish, part_count };
  Tensor run(Part part, const Batch& batch);  // the step's loss, as far as it has come
  std::vector<Tensor> traced(Part part, const Batch& batch);
  void backward(const Tensor& loss, const Tensor& share);
  void update();  // by the learning rate on the device; gradients are used up

  TrainerOptions options_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<AdamW> optimizer_;
  Tensor share_, loss_sum_;  // of a step by micro-batches: one's part of it, and the loss so far
  std::shared_ptr<compile::Arena> arena_;
  std::unique_ptr<compile::Compiled> compiled_[part_count];  // traced when first run, over one arena
};

}  // namespace sinter
