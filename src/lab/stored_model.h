// A model as a checkpoint holds it, to be used and not trained.
#pragma once
#include "lab/output.h"
#include "lab/sweep.h"
#include "train/checkpoint_folder.h"

namespace sinter::lab {

struct StoredModel {
  CheckpointInfo checkpoint;
  MeasuredRun run;  // of which the model, the precision and the device matter
};
// The newest checkpoint of a run's folder, or the one that `dir` is. What `flags` say of device, types, attention and
// context holds over what the run had; of its shape they may say nothing.
StoredModel stored_model(const std::string& dir, const SweepOptions& flags);

// Masters of a model of that configuration.
void load_masters(const CheckpointInfo& checkpoint, Parameters& into, Progress& progress);

}  // namespace sinter::lab
