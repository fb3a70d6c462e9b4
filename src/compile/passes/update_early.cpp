// The optimizer's update of the flat buffers is one call at the end of the step. It works element by element, so it can be cut into parts,
// and each part can run as soon as no call needs its gradients, masters and 16-bit copies any more: right after the layer's gradients are
// complete, while the backward pass goes on. Not where the update waits for all gradients: clipping, and loss scaling.
#include <algorithm>
#include <fmt/format.h>

#include "compile/passes.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

constexpr int most_parts = 64;
constexpr int64_t least_elements = 1 << 20, alignment = 128;  // parameters begin at multiples of 128 elements

bool is_update(const Node& n) { return n.op == &ops::adamw || n.op == &ops::sgd; }
// The flat buffers among its inputs: the state is small and of another type.
bool is_flat(const Node& n, int i) { return n.call.in[i].rank == 1 && n.call.in[i].dims[0] == n.call.in[0].dims[0]; }

Node part_of(const Node& n, int64_t begin, int64_t end) {
  Node part = n;
  double share = double(end - begin) / double(n.call.in[0].dims[0]);
  for (int i = 0; i < n.call.n_in; ++i)
    if (is_flat(n, i)) {
      part.call.in[i].dims[0] = end - begin;
      part.in[i].offset += begin * size_of(n.call.in[i].dtype);
    }
  part.bytes *= share, part.cost.matmul_flops *= share, part.cost.other_flops *= share;
  return part;
}

}  // namespace

Report update_early(Graph& graph) {
  Report report;
  size_t count = graph.nodes.size();
  // What every update reads besides its flat buffers: the state, written by one call that needs nothing else.
  size_t prepare = count;
  for (size_t i = 0; i < count; ++i)
    if (graph.nodes[i].op == &ops::prepare_step) {
      if (prepare != count || graph.nodes[i].call.n_in != 1) return report;
      prepare = i;
    }
  if (prepare == count) return report;
  int state = graph.nodes[prepare].in[0].buffer;
  for (size_t i = 0; i < prepare; ++i) {
    bool used = false;
    graph.nodes[i].for_each_access([&](const Operand& o, const TensorRef&, bool, bool) { used |= o.buffer == state; });
    if (used) return report;
  }

  std::vector<std::vector<Node>> after(count);  // parts that run after a call
  std::vector<bool> dead(count);
  for (size_t u = prepare + 1; u < count; ++u) {
    const Node& n = graph.nodes[u];
    if (!is_update(n)) continue;
    int64_t elements = n.call.in[0].dims[0];
    int64_t step = std::max(least_elements, (elements + most_parts - 1) / most_parts);
    step = (step + alignment - 1) / alignment * alignment;
    int parts = 0;
    for (int64_t begin = 0; begin < elements; begin += step) {
      Node part = part_of(n, begin, std::min(elements, begin + step));
      size_t last = 0;
      for (size_t i = 0; i < u; ++i)
        graph.nodes[i].for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
          for (int k = 0; k < part.call.n_in; ++k)
            if (is_flat(n, k) && o.buffer == part.in[k].buffer &&
                span_of(t, o.offset).overlaps(span_of(part.call.in[k], part.in[k].offset)))
              last = i;
        });
      after[last].push_back(part);
      ++parts;
    }
    dead[u] = true;
    report.lines.push_back(fmt::format("{} in {} parts", n.range->path(), parts));
  }
  std::vector<Node> nodes{graph.nodes[prepare]};
  for (size_t i = 0; i < count; ++i) {
    if (i != prepare && !dead[i]) nodes.push_back(graph.nodes[i]);
    nodes.insert(nodes.end(), after[i].begin(), after[i].end());
  }
  graph.nodes = std::move(nodes);
  return report;
}

}  // namespace sinter::compile
