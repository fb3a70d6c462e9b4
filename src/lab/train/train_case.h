// One training run: the loop over its steps.
//
// Note [Late reading]: the host reads a step's loss once the next step is under way, so that the device never waits for
// it. Before what must know of a step (an evaluation, a checkpoint, the end) the readings so far are taken first. So a
// loss that is not finite is seen one step late: one more step may have been taken from parameters it has spoiled, but
// nothing is evaluated or saved of them. With clipping the gradient's norm is known on the device, and an update by a
// gradient that is not finite is held back there.
#pragma once
#include "lab/driver.h"
#include "lab/train/data.h"
#include "lab/train/log.h"
#include "lab/train/result.h"
#include "train/checkpoint.h"
#include "train/step_readings.h"
#include "train/token_batches.h"

namespace sinter::lab {

// A run with all that was left open filled in.
struct TrainPlan {
  MeasuredRun run;  // accumulate, steps and AdamW's numbers are those of the flags
  BatchShape shape;
  std::string schedule;
  double min_lr = 0;
  int64_t warmup_steps = 0, schedule_steps = 0, evaluate_every = 0, evaluate_batches = 0;
  bool skip_not_finite = false;
  std::string log;
  std::optional<int64_t> log_after;  // the last step in it that counts, where there may be a log already
  std::string out;                   // the folder of checkpoints; empty: none
  int64_t keep = 0, checkpoint_every = 0;
  Json config;  // what a checkpoint says of the run
  std::optional<CheckpointInfo> from;

  int64_t first_step() const { return from ? from->step : 0; }
  double learning_rate(int64_t step) const;    // steps count from 0
  int64_t evaluated(int64_t available) const;  // sequences, of those there are
};

// The largest micro-batch that is predicted to fit, of the same global batch; in a compiled step with recomputation,
// where not even a single sequence fits without. If nothing does, a single one is left.
void choose_micro_batch(TrainPlan& plan, dist::World* world, const MakeModel& make_model);

class TrainCase : public Case {
 public:
  // `world`: of the ranks that train together; null: this process alone.
  TrainCase(TrainPlan plan, TrainData& data, dist::World* world, const MakeModel& make_model);

  std::string text() const override;
  plan::Fit fit() override;
  Json does_not_fit(const std::string& reason, int64_t) override;
  bool run(const Turn&, Progress& progress) override;
  Json rows() override;
  std::string outcome(const Json& row) const override;

 private:
  class Loop;

  bool writes() const { return !world_ || world_->rank() == 0; }
  int64_t ranks() const { return plan_.shape.ranks; }

  TrainPlan plan_;
  TrainData& data_;
  dist::World* world_;
  const MakeModel& make_model_;
  plan::Prediction need_;
  TrainResult result_;
};

}  // namespace sinter::lab
