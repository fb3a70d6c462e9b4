// What must hold of every compiled graph, however it came about.
#pragma once
#include <gtest/gtest.h>

#include "compile/graph.h"

namespace sinter {

// [i][j]: call j is over when call i begins, because of the lanes and who waits for whom.
std::vector<std::vector<bool>> order_of(const compile::Graph& graph);

// Lanes cannot be seen to be right by running them once: whatever two calls touch, one of them writing, must be ordered
// by the lanes themselves or by waiting.
void expect_ordered_lanes(const compile::Graph& graph);

// Every element that a call reads of the step's own buffers has been written before, but for what
// a causal softmax does not see.
void expect_reads_of_written(const compile::Graph& graph);

}  // namespace sinter
