// Passes over a graph, one file each. A pass is `Report run(Graph&)`; the order of the table is the order in which they run.
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

Report fold_constants(Graph& graph);
Report remove_dead_code(Graph& graph);
Report merge_equal_calls(Graph& graph);
Report use_flash(Graph& graph);
Report cut_causal_attention(Graph& graph);
Report heads_in_place(Graph& graph);
Report loss_in_place(Graph& graph);
Report join_products(Graph& graph);
Report fuse_pointwise(Graph& graph);
Report fuse_rows(Graph& graph);
Report add_by_product(Graph& graph);
Report fold_updates(Graph& graph);
Report update_early(Graph& graph);
Report pack_products(Graph& graph);
Report use_lanes(Graph& graph);
Report shrink_gradients(Graph& graph);
Report plan_memory(Graph& graph);         // gives buffers that are never in use together the same memory …
Report plan_without_reuse(Graph& graph);  // … or each its own, when that is switched off

double bytes_moved(const Graph& graph);

// Nodes for which `dead` holds are taken out.
void remove_nodes(Graph& graph, const std::vector<bool>& dead);

}  // namespace sinter::compile
