// Optimizers over the flat buffers. Learning rate, step count, clipping and loss scale live on the device (StepState),
// so a step never waits for the host.
#pragma once
#include <functional>
#include <memory>

#include "nn/parameters.h"

namespace sinter {

struct OptimizerOptions {
  double learning_rate = 1e-3;  // until set_learning_rate() says otherwise
  double max_norm = 0;          // clip the global gradient norm to this; 0: no clipping
  bool loss_scaling = false;    // fp16: dynamic, decided on the device
  double initial_loss_scale = 65536;
};

// Its moments are roles of the parameters, from allocate() until it is destroyed, which must be before they are.
class Optimizer {
 public:
  Optimizer(Parameters& parameters, const OptimizerOptions& options, std::vector<std::string> moments);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step(double learning_rate);  // uses and keeps the gradients; call zero_grad() before the next backward
  // The same in parts. A traced step has no learning rate of its own: it reads the one on the device.
  void set_learning_rate(double learning_rate);
  void step();
  virtual void allocate();  // the moments, which the first step would make: a run that only scales its loss needs none
  bool needs_norm() const { return options_.max_norm > 0 || options_.loss_scaling; }
  void prepare(const Tensor& squares);  // f64: their sum over all gradients, where needs_norm(); then …
  virtual void update(int64_t begin, int64_t end) = 0;  // … a range of the trainable part, one after the other

  Tensor loss_scale(DType dtype) const;                  // the seed of backward(); undefined without loss scaling
  std::vector<double> state() const;                     // StepState; waits for the device: for reports and checkpoints
  const Tensor& device_state() const { return state_; }  // the same where it lives, for who does not want to wait
  void load_state(const std::vector<double>& state);     // in place
  const std::vector<std::string>& moments() const { return moments_; }  // names of roles, also before allocate()

 protected:
  // Runs the op over a range of master, gradient and the named moments, with the state, and
  // the 16-bit copy if there is one.
  void run(const OpDef& op, const Attrs& attrs, const std::vector<std::string>& moments, int64_t begin, int64_t end);

  Parameters& parameters_;
  OptimizerOptions options_;
  Tensor state_;

 private:
  std::vector<std::string> moments_;
  size_t allocated_ = 0;  // so many of them
  double learning_rate_;
};
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Parameters&, bool loss_scaling)>;

struct AdamWOptions : OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
class AdamW : public Optimizer {
 public:
  AdamW(Parameters& parameters, const AdamWOptions& options);  // moments: adamw.m, adamw.v
  void update(int64_t begin, int64_t end) override;

 private:
  AdamWAttrs attrs_;
};
MakeOptimizer make_adamw(const AdamWOptions& options);  // loss_scaling is the caller's, here and below

struct SgdOptions : OptimizerOptions {
  double momentum = 0, weight_decay = 0;
};
class Sgd : public Optimizer {
 public:
  Sgd(Parameters& parameters, const SgdOptions& options);  // moments: sgd.momentum, unless that is 0
  void update(int64_t begin, int64_t end) override;

 private:
  SgdAttrs attrs_;
};
MakeOptimizer make_sgd(const SgdOptions& options);

// Linear warm-up to the peak over `warmup` steps, then a cosine down to `floor` at `total`. Steps count from 0.
double cosine_schedule(int64_t step, double peak, double floor, int64_t warmup, int64_t total);

}  // namespace sinter
