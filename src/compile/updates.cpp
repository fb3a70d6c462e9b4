#include "compile/updates.h"

#include <algorithm>

namespace sinter::compile {

bool is_update(const Node& n) { return n.op->kind == OpKind::update; }

bool is_flat(const Node& n, int i) { return n.call.in[i].rank == 1 && n.call.in[i].dims[0] == n.call.in[0].dims[0]; }

Node part_of(const Node& n, int64_t begin, int64_t end) {
  Node part = n;
  double share = double(end - begin) / double(n.call.in[0].dims[0]);
  for (int i = 0; i < n.call.n_in; ++i)
    if (is_flat(n, i)) {
      part.call.input(i).dims[0] = end - begin;
      part.in[i].offset += begin * size_of(n.call.in[i].dtype);
    }
  part.bytes *= share, part.cost.matmul_flops *= share, part.cost.other_flops *= share;
  return part;
}

bool prepare_first(Graph& graph) {
  auto is_prepare = [](const Node& n) { return n.op->kind == OpKind::step_numbers; };
  auto prepare = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_prepare);
  if (prepare == graph.nodes.end() || prepare->call.n_in != 1 ||
      std::any_of(prepare + 1, graph.nodes.end(), is_prepare))
    return false;
  int state = prepare->in[0].buffer;
  for (auto n = graph.nodes.begin(); n != prepare; ++n) {
    bool used = n->is_host();
    n->for_each_access([&](const Operand& o, const TensorRef&, bool, bool) { used |= o.buffer == state; });
    if (used) return false;
  }
  std::rotate(graph.nodes.begin(), prepare, prepare + 1);
  return true;
}

}  // namespace sinter::compile
