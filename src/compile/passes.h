// Passes over a graph, one file each, named as --passes knows it. A pass is `Report run(Graph&)`; the order of the table is the order in which they run.
#pragma once
#include <span>

#include "compile/graph.h"

namespace sinter::compile {

struct Pass {
  const char* name;  // as --passes knows it
  const char* what;
  Report (*run)(Graph&);
};
std::span<const Pass> all_passes();

namespace passes {
Report constants(Graph& graph);
Report dce(Graph& graph);
Report cse(Graph& graph);
Report flash(Graph& graph);
Report causal(Graph& graph);
Report heads(Graph& graph);
Report loss(Graph& graph);
Report join(Graph& graph);
Report fuse(Graph& graph);
Report rows(Graph& graph);
Report beta(Graph& graph);
Report fold(Graph& graph);
Report early(Graph& graph);
Report pack(Graph& graph);
Report lanes(Graph& graph);
Report gradients(Graph& graph);
Report plan(Graph& graph);  // gives buffers that are never in use together the same memory …
}  // namespace passes
void plan_without_reuse(Graph& graph);  // … or each its own, when that is switched off

double bytes_moved(const Graph& graph);

// Nodes for which `dead` holds are taken out.
void remove_nodes(Graph& graph, const std::vector<bool>& dead);

}  // namespace sinter::compile
