// Dead code: from the last call to the first, one is needed if it writes what exists beyond the step, or what a needed
// one reads, or if the host acts.
#include "compile/passes.h"

namespace sinter::compile {

Report passes::dce(Graph& graph, const PassOptions&) {
  std::vector<bool> needed(graph.buffers.size()), dead(graph.nodes.size());
  for (size_t b = 0; b < needed.size(); ++b) needed[b] = graph.buffers[b].external || graph.buffers[b].output;
  Report report;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& n = graph.nodes[i];
    bool used = n.is_host();
    n.for_each_access(
        [&](const Operand& o, const TensorRef&, bool, bool writes) { used |= writes && needed[size_t(o.buffer)]; });
    dead[i] = !used;
    if (dead[i]) {
      report.lines.push_back(n.range->path());
      continue;
    }
    n.for_each_access([&](const Operand& o, const TensorRef&, bool reads, bool) {
      if (reads) needed[size_t(o.buffer)] = true;
    });
  }
  remove_nodes(graph, dead);
  return report;
}

}  // namespace sinter::compile
