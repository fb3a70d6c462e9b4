#include "compile/passes.h"

namespace sinter::compile {

std::span<const Pass> all_passes() {
  static const Pass passes[] = {
      {"constants", "what follows from constants alone is computed once, and others know their constants",
       fold_constants},
      {"dce", "calls whose results nobody reads are dropped", remove_dead_code},
      {"cse", "calls that compute the same again are dropped", merge_equal_calls},
      {"flash", "attention that is spelled out becomes the attention op, which stores no scores", use_flash},
      {"causal", "naive attention works in strips of rows, each on what its rows see, and stores no scores (CUDA)",
       cut_causal_attention},
      {"heads", "attention's heads stay in the rows of their projection, rotated in place (CUDA)", heads_in_place},
      {"loss", "logits become their gradient where they lie, as their loss is computed", loss_in_place},
      {"join", "products of one input with weights that lie one after the other become one (CUDA)", join_products},
      {"fuse", "neighbouring pointwise calls become one, and what only passes between them is never stored",
       fuse_pointwise},
      {"rows", "ops on whole rows take in their pointwise neighbours (CUDA)", fuse_rows},
      {"beta", "a product that is then added to something is added while it is stored", add_by_product},
      {"fold", "a weight's gradient goes straight into its update and is never stored", fold_updates},
      {"early", "the optimizer updates each part of the parameters as soon as nothing more needs it", update_early},
      {"pack", "large fp32 products go to a kernel of our own (CPU)", pack_products},
      {"lanes", "weight gradients and updates run beside the chain of activations' gradients", use_lanes},
      {"gradients", "the memory of gradients that are never stored is given back", shrink_gradients},
      {"plan", "buffers that are never in use together share memory", plan_memory},
  };
  return passes;
}

double bytes_moved(const Graph& graph) {
  double sum = 0;
  for (const Node& n : graph.nodes) sum += n.bytes;
  return sum;
}

void remove_nodes(Graph& graph, const std::vector<bool>& dead) {
  size_t kept = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!dead[i]) {
      if (kept != i) graph.nodes[kept] = graph.nodes[i];
      ++kept;
    }
  graph.nodes.resize(kept);
}

}  // namespace sinter::compile
