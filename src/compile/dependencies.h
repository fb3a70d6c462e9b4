// Who must wait for whom because of the data; sharing of memory by the plan is not in it.
#pragma once
#include "compile/graph.h"

namespace sinter::compile {

// The calls that each one must wait for: the last to write what it reads, and the last to read or write what it writes.
std::vector<std::vector<int>> dependencies(const Graph& graph);

}  // namespace sinter::compile
