// What passes know about the optimizer's calls: each updates a stretch of the flat buffers, element by element.
#pragma once
#include "compile/graph.h"

namespace sinter::compile {

bool is_update(const Node& n);
// Whether an input of an update is one of the flat buffers; the state is not.
bool is_flat(const Node& update, int input);
// The update of elements [begin, end) alone.
Node part_of(const Node& update, int64_t begin, int64_t end);

// Moves the call that works out the step's numbers to the front, so that updates can run before the end of the backward
// pass. False where it has to wait for all gradients: clipping, and loss scaling; or for the host.
bool prepare_first(Graph& graph);

}  // namespace sinter::compile
