// One configuration's repeated work: the same calls in the same order, whether they run,
// or the meta device only counts.
#pragma once
#include "train/run_config.h"

namespace sinter {

class Workload {
 public:
  Workload(const RunConfig& config, DeviceType where, const MakeModel& make_model);

  void run(const Trainer::Mark& mark = {});         // one pass
  const Tensor& loss() const { return loss_; }      // of the last pass; undefined after a forward pass
  const compile::Compilation* compilation() const;  // of a pass's end; null: eager
  Trainer& trainer() { return trainer_; }
  const Trainer& trainer() const { return trainer_; }

 private:
  Pass pass_;
  Trainer trainer_;
  std::vector<Batch> batches_;
  Tensor loss_;
};

// The phases that device events can tell apart in a pass; none where it is compiled or accumulates.
int phases_of(const RunConfig& config);

}  // namespace sinter
