// sinter for C++ programs: tensors and operations, the Transformer and its parts, training, generating, the
// laboratory's command line for a model of your own (examples/).
#pragma once
#include "core/range.h"
#include "dist/world.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "train/generator.h"
#include "train/trainer.h"

namespace sinter {

// The whole command line (bench model, precision, …) for the built-in Transformer, or for yours. Returns the exit code.
int lab_main(int argc, char** argv);
int lab_main(int argc, char** argv, const MakeModel& make_model);

}  // namespace sinter
