// A run that goes on from a checkpoint.
#pragma once
#include "lab/train/options.h"
#include "train/checkpoint_folder.h"

namespace sinter::lab {

// The checkpoint that --resume or --resume-if-possible means, if there is one. Says then where the run writes, too.
std::optional<CheckpointInfo> checkpoint_to_resume(TrainOptions& options);

// Lays what the checkpoint says of its run under what flags and --config say. What another number of ranks divides
// anew is left open.
void lay_under(const CheckpointInfo& from, int64_t ranks, TrainOptions& options);

// Where a run is another one than the checkpoint's, or its files have changed. `config` is what it would be saved with.
void refuse_other_run(const CheckpointInfo& from, const Json& config);

}  // namespace sinter::lab
