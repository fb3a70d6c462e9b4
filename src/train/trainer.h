// A model, its precision and optimizer, and the passes over it. Whoever measures, predicts or trains runs this.
#pragma once
#include <array>
#include <span>

#include "compile/compiled.h"
#include "dist/data_parallel.h"
#include "dist/sharding.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "train/batch.h"
#include "train/precision.h"

namespace sinter {

enum class Pass {
  forward,
  evaluate,
  forward_backward,
  step
};  // logits; loss without a tape; with gradients; with the update
constexpr int pass_count = 4;
enum class Phase { forward, backward, optimizer, whole };  // whole: compiled, or several micro-batches
constexpr int phase_count = 4;

struct TrainerOptions {
  Precision precision;
  DeviceType device = DeviceType::cpu;
  uint64_t seed = 0;
  MakeOptimizer optimizer = make_adamw({});
  std::optional<compile::CompileOptions> compiled;  // each pass is traced once and replayed
  // The ranks that train together, each with its own batches: gradients and losses are averages over them. Null: alone.
  ProcessGroup* group = nullptr;
  dist::DataParallelOptions data_parallel;
  dist::ShardOptions shard;  // what the ranks divide among them
};

class Trainer {
 public:
  using Mark = std::function<void(Phase)>;  // called as a phase has been submitted

  Trainer(const ModelConfig& config, const TrainerOptions& options, const MakeModel& make_model);
  Trainer(const Trainer&) = delete;  // the optimizer holds on to the parameters
  Trainer& operator=(const Trainer&) = delete;

  // One pass over micro-batches, which weigh the same: loss and gradient are the means of theirs (and of all ranks'),
  // logits those of the last. Earlier gradients are forgotten first; a step, by the optimizer's learning rate, uses its
  // own up. Does not wait for the device; what it returns holds until the next pass.
  Tensor run(Pass pass, std::span<const Batch> micro_batches, const Mark& mark = {});
  Tensor run(Pass pass, const Batch& batch, const Mark& mark = {}) { return run(pass, std::span(&batch, 1), mark); }
  // Sets the rate, runs, waits; returns the loss.
  double step(std::span<const Batch> micro_batches, double learning_rate);
  double step(const Batch& batch, double learning_rate) { return step(std::span(&batch, 1), learning_rate); }

  // The same call by call, also where passes are compiled: for who listens to what is computed.
  Tensor run_eagerly(Pass pass, const Batch& batch);

  // What compiling a pass over one batch begins with: its calls before any compiler pass.
  compile::Graph trace(Pass pass, const Batch& batch);

  Parameters& parameters() { return parameters_; }
  dist::Parallel* parallel() const { return parallel_.get(); }  // null: alone
  Optimizer& optimizer();                                       // made on first use: a forward pass needs none
  // Of compiled passes, what has run; of a step, its end last.
  struct Replayed {
    const char* part;  // "first micro-batch", where a pass has several
    const compile::Compiled* compiled;
  };
  std::vector<Replayed> replayed() const;

 private:
  // Where a micro-batch stands in its pass: the first overwrites gradients, later ones add to
  // them, the last one ends the pass.
  enum Part { only, first, later, last, part_count };
  Tensor run(Pass pass, Part part, const Batch& batch, const Mark& mark);
  Tensor submit(Pass pass, Part part, const Batch& batch, const Mark& mark);
  Tensor forward(Pass pass, const Batch& batch) const;  // logits, or the loss
  void backward(const Tensor& loss, Pass pass, Part part);
  void make_what_lasts(Pass pass);

  TrainerOptions options_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<dist::Parallel> parallel_;  // null: alone
  Tensor share_, loss_sum_;  // of a pass over several micro-batches: one's part of it, and the loss so far
  std::shared_ptr<compile::Arena> arena_;
  std::array<std::array<std::unique_ptr<compile::Compiled>, part_count>, pass_count> compiled_;  // over one arena
};

}  // namespace sinter
