// One configuration's repeated work: the same calls in the same order, whether they run, or the meta device only counts.
#pragma once
#include <functional>

#include "train/run_config.h"

namespace sinter {

constexpr const char* phase_names[] = {"forward", "backward", "optimizer", "pass"};
constexpr int whole_pass = 3;  // the one phase of a compiled pass
int phase_count(Pass p);
int phase_count(
    const RunConfig& c);  // 0: its phases cannot be told apart by events, because it is compiled or accumulates

class Workload {
 public:
  Workload(const RunConfig& config, DeviceType where, const MakeModel& make_model);

  // One pass. `mark(i)` is called as the i-th phase has been submitted; a pass without phases has one, whole_pass.
  //   forward            logits without a tape
  //   forward-backward   loss and gradients, old gradients forgotten first
  //   step               and the optimizer; of several micro-batches, if asked for
  void run(const std::function<void(int)>& mark = {});
  void forward();                                          // logits without a tape, whatever the pass
  std::vector<const compile::Compiled*> compiled() const;  // those that ran, the last of a pass last
  const compile::Compilation* compilation() const;         // of that one; null: eager
  const Tensor& loss() const { return loss_; }             // of the last pass; undefined after a forward pass
  Parameters& parameters() { return trainer_.parameters(); }

 private:
  Tensor pass(const std::function<void(int)>& mark);  // its logits or loss
  Tensor replay();

  RunConfig config_;
  Trainer trainer_;
  std::vector<Batch> batches_;
  Tensor loss_;
  std::optional<compile::Compiled> compiled_;
};

}  // namespace sinter
