// Passes over a graph, one file each, named as --passes knows it. A pass is `Report run(Graph&, const PassOptions&)`;
// the order of the table is the order in which they run.
#pragma once
#include <span>

#include "compile/graph.h"

namespace sinter::compile {

// What a compilation asks of its passes.
struct PassOptions {
  bool deterministic = false;  // none brings in calls whose bits differ from run to run
  // Calls that cse may drop: the first so many, whose results are kept for the shortest time.
  int most_merged = INT32_MAX;
};

struct Pass {
  const char* name;  // as --passes knows it
  const char* what;
  Report (*run)(Graph&, const PassOptions&);
};
std::span<const Pass> all_passes();

namespace passes {
Report alone(Graph&, const PassOptions&);
Report constants(Graph&, const PassOptions&);
Report dce(Graph&, const PassOptions&);
Report cse(Graph&, const PassOptions&);
Report flash(Graph&, const PassOptions&);
Report causal(Graph&, const PassOptions&);
Report heads(Graph&, const PassOptions&);
Report loss(Graph&, const PassOptions&);
Report join(Graph&, const PassOptions&);
Report fuse(Graph&, const PassOptions&);
Report rows(Graph&, const PassOptions&);
Report beta(Graph&, const PassOptions&);
Report fold(Graph&, const PassOptions&);
Report early(Graph&, const PassOptions&);
Report gathers(Graph&, const PassOptions&);
Report lanes(Graph&, const PassOptions&);
Report gradients(Graph&, const PassOptions&);
Report plan(Graph&, const PassOptions&);  // gives buffers that are never in use together the same memory …
}  // namespace passes
void plan_without_reuse(Graph& graph);  // … or each its own, when that is switched off

double bytes_moved(const Graph& graph);

// Nodes for which `dead` holds are taken out.
void remove_nodes(Graph& graph, const std::vector<bool>& dead);

}  // namespace sinter::compile
