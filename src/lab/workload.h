// One configuration's repeated work: the same calls in the same order, whether they run, or the meta device only counts.
#pragma once
#include <functional>

#include "lab/run_config.h"

namespace sinter::lab {

constexpr const char* phase_names[] = {"forward", "backward", "optimizer"};
int phase_count(Pass p);

class Workload {
 public:
  Workload(const RunConfig& config, DeviceType where, const MakeModel& make_model);

  // One pass. `mark(i)` is called as the i-th phase has been submitted.
  //   forward            logits without a tape
  //   forward-backward   loss and gradients, old gradients forgotten first
  //   step               and the optimizer
  void run(const std::function<void(int)>& mark = {});
  void forward();                               // logits without a tape, whatever the pass
  const Tensor& loss() const { return loss_; }  // of the last pass; undefined after a forward pass
  Parameters& parameters() { return trainer_.parameters(); }

 private:
  RunConfig config_;
  Trainer trainer_;
  Batch batch_;
  Tensor loss_;
};

}  // namespace sinter::lab
