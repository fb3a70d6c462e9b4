// Where a number that is not finite came from.
#pragma once
#include <span>
#include <string>

#include "train/trainer.h"

namespace sinter {

// Whether all parameters that this rank has are.
bool parameters_are_finite(const Parameters& parameters);

// The first of this rank's parts of them that is not: "the parameter layers.3.attn.q". Empty: all are.
std::string first_not_finite(const Parameters& parameters);

// What comes first: "the parameter layers.3.attn.q", or "the output of softmax in backward/layers.3/attn, micro-batch
// 2", found by computing loss and gradients of these micro-batches again, call by call. Empty: all is finite this time.
// Gradients are forgotten. By all ranks of a trainer.
std::string first_not_finite(Trainer& trainer, std::span<const Batch> micro_batches);

}  // namespace sinter
