#include "compile/lane_order.h"

#include <algorithm>
#include <array>

namespace sinter::compile {
namespace {

struct Access {
  int node;
  const void* memory;  // an existing storage; null: the arena
  Span span;
  bool writes;
  Operand operand;  // of a tensor; none: scratch memory
  const TensorRef* tensor;

  bool meets(const Access& o) const {
    if (!(writes || o.writes) || memory != o.memory || !span.overlaps(o.span)) return false;
    bool comparable = tensor && o.tensor && operand.buffer == o.operand.buffer;
    return !comparable || overlap(*tensor, operand.offset, *o.tensor, o.operand.offset);
  }
};

std::vector<Access> accesses_of(const Graph& g, int n) {
  std::vector<Access> all;
  const Node& node = g.nodes[size_t(n)];
  auto add = [&](const Operand& o, Span span, bool writes, const TensorRef* t) {
    const Buffer& b = g.buffers[size_t(o.buffer)];
    int64_t base = g.base_of(b);
    all.push_back({n, g.memory_of(b), {base + span.begin, base + span.end}, writes, o, t});
  };
  node.for_each_access(
      [&](const Operand& o, const TensorRef& t, bool, bool writes) { add(o, span_of(t, o.offset), writes, &t); });
  if (node.workspace.buffer >= 0)
    add(node.workspace, {0, g.buffers[size_t(node.workspace.buffer)].bytes}, true, nullptr);
  return all;
}

}  // namespace

void order_lanes(Graph& graph) {
  constexpr int lanes = host_lane + 1;
  using Clock = std::array<int, lanes>;  // the last call of each lane that is known to be over
  std::vector<Clock> known(graph.nodes.size());
  std::array<std::vector<Access>, lanes> earlier;
  Clock at_end_of_lane[lanes];
  for (Clock& c : at_end_of_lane) c.fill(-1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    node.waits.clear();
    Clock clock = at_end_of_lane[node.lane];
    std::vector<Access> mine = accesses_of(graph, int(n));
    for (int lane = 0; lane < lanes; ++lane) {
      if (lane == node.lane) continue;
      int needed = -1;
      for (size_t i = earlier[size_t(lane)].size(); i-- > 0 && needed < 0;) {
        const Access& a = earlier[size_t(lane)][i];
        if (a.node <= clock[size_t(lane)]) break;
        for (const Access& m : mine)
          if (a.meets(m)) needed = a.node;
      }
      if (needed < 0) continue;
      node.waits.push_back(needed);
      for (int l = 0; l < lanes; ++l) clock[size_t(l)] = std::max(clock[size_t(l)], known[size_t(needed)][size_t(l)]);
    }
    clock[size_t(node.lane)] = int(n);
    known[n] = at_end_of_lane[node.lane] = clock;
    std::vector<Access>& list = earlier[size_t(node.lane)];
    list.insert(list.end(), mine.begin(), mine.end());
  }
}

}  // namespace sinter::compile
