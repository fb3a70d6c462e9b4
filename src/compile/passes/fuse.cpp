// Kernel fusion of pointwise calls: those that work element by element on tensors of the same size, and are connected,
// become one call. Each element is loaded once and stored once; what only passes between them never reaches
// memory, and stays in fp32 on its way.
#include "compile/passes/fusion.h"

namespace sinter::compile {

Report passes::fuse(Graph& graph, const PassOptions&) {
  return fuse_groups(
      graph,
      [](const Graph& g, const Node& n) {
        return is_pointwise(g, n) ? FusionGroup::Expand(expand_pointwise) : nullptr;
      },
      [](const FusionGroup&) { return true; });
}

}  // namespace sinter::compile
