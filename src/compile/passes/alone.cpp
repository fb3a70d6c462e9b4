// A group of one rank has nobody to communicate with: collectives in place are dropped, so that a step of one rank is
// the step without ranks, folded updates included.
#include "backend/process_group.h"
#include "compile/passes.h"
#include "compile/rewrite.h"

namespace sinter::compile {

Report passes::alone(Graph& graph, const PassOptions&) {
  Report report;
  std::vector<bool> dead(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    bool in_place = n.call.n_in == 1 || (n.call.n_in == 2 && same_place(input(n, 0), input(n, 1)));
    dead[i] = n.is_communication() && in_place && n.call.attrs.as<CollectiveAttrs>().group->size() == 1;
    if (dead[i]) report.lines.push_back(n.range->path());
  }
  remove_nodes(graph, dead);
  return report;
}

}  // namespace sinter::compile
