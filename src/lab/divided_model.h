// A model's shapes, and how devices divide it, as the simulator of layers takes them.
#pragma once
#include "lab/sweep.h"
#include "plan/layers.h"

namespace sinter::lab {

plan::Shape shape_of(const MeasuredRun& run, bool ungated);

// Data ranks alone, as many as its caller says: what follows from batch, mode, precision and level.
plan::Layout layout_of(const MeasuredRun& run, ShardLevel level);

}  // namespace sinter::lab
