#include "compile/passes.h"

namespace sinter::compile {

std::span<const Pass> all_passes() {
  static const Pass table[] = {
      {"alone", "collectives of a single rank are dropped", passes::alone},
      {"constants", "what follows from constants alone is computed once, and others know their constants",
       passes::constants},
      {"dce", "calls whose results nobody reads are dropped", passes::dce},
      {"cse", "calls that compute the same again are dropped", passes::cse},
      {"flash", "attention that is spelled out becomes the attention op, which stores no scores", passes::flash},
      {"causal", "naive attention works in strips of rows, each on what its rows see, and stores no scores (CUDA)",
       passes::causal},
      {"heads", "attention's heads stay in the rows of their projection, rotated in place (CUDA)", passes::heads},
      {"loss", "logits become their gradient where they lie, as their loss is computed", passes::loss},
      {"join", "products of one input with weights that lie one after the other become one (CUDA)", passes::join},
      {"fuse", "neighbouring pointwise calls become one, and what only passes between them is never stored",
       passes::fuse},
      {"rows", "ops on whole rows take in their pointwise neighbours (CUDA)", passes::rows},
      {"beta", "a product that is then added to something is added while it is stored", passes::beta},
      {"fold", "a weight's gradient goes straight into its update and is never stored", passes::fold},
      {"early", "the optimizer updates each part of the parameters as soon as nothing more needs it", passes::early},
      {"gathers", "parameters that ranks share are gathered beside compute, before they are read", passes::gathers},
      {"lanes", "weight gradients, updates and collectives run beside the chain of activations' gradients",
       passes::lanes},
      {"gradients", "the memory of gradients that are never stored is given back", passes::gradients},
      {"plan", "buffers that are never in use together share memory", passes::plan},
  };
  return table;
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
      if (kept != i) graph.nodes[kept] = std::move(graph.nodes[i]);
      ++kept;
    }
  graph.nodes.resize(kept);
}

}  // namespace sinter::compile
