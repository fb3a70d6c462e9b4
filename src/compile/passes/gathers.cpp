// Where parameters that ranks share are gathered (Note [Levels] in dist/sharding.h). A trace has each gathering where
// what it brings is first read, or behind the whole update. Here it goes where it runs beside compute:
//   before use    two gatherings ahead: beside what uses the one before the last. Memory holds three at most.
//   after update  as soon as the parameters' update is over; behind the next collective, so that gradients which are
//                 ready do not wait for an update that is not.
#include <algorithm>
#include <fmt/format.h>

#include "backend/choices.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// The call that casts this rank's share to where it is gathered from; -1: it is gathered as it is.
int cast_for(const Graph& graph, int gathering) {
  int buffer = graph.nodes[size_t(gathering)].in[1].buffer;
  for (int i = gathering - 1; i >= 0; --i)
    for (const Operand& o : graph.nodes[size_t(i)].out)
      if (o.buffer == buffer) return i;
  return -1;
}

// The last call before it that has to do with what it reads or writes.
int last_touch(const Graph& graph, int gathering) {
  const Node& g = graph.nodes[size_t(gathering)];
  for (int i = gathering - 1; i >= 0; --i)
    if (is_touched(graph, input(g, 0), i, i + 1) || is_touched(graph, input(g, 1), i, i + 1)) return i;
  return -1;
}

}  // namespace

Report passes::gathers(Graph& graph, const PassOptions&) {
  Report report;
  Replacement with(graph);
  std::vector<int> earlier;  // gatherings before use
  int count = int(graph.nodes.size());
  for (int i = 0; i < count; ++i) {
    const Node& n = graph.nodes[size_t(i)];
    if (n.op != &ops::all_gather) continue;
    if (graph.buffers[size_t(n.in[1].buffer)].is_planned()) {
      int to = earlier.size() >= choices::units_ahead ? earlier[earlier.size() - choices::units_ahead] : 0,
          cast = cast_for(graph, i);
      earlier.push_back(i);
      if (to == i || !graph.in_one_segment(to, i)) continue;
      report.lines.push_back(fmt::format("{} of {} bytes: beside {}", n.range->path(),
                                         graph.buffers[size_t(n.in[1].buffer)].bytes,
                                         graph.nodes[size_t(to)].range->path()));
      std::vector<int> moved = {i};
      if (cast >= 0) moved.insert(moved.begin(), cast);
      for (int m : moved)
        if (earlier.size() > choices::units_ahead) with.put_after(to, graph.nodes[size_t(m)]);
        else with.put(to, graph.nodes[size_t(m)]);
      with.drop(moved);
    } else {
      int update = last_touch(graph, i), to = update;
      while (to + 1 < i && !graph.nodes[size_t(to) + 1].is_communication()) ++to;
      if (update < 0 || to + 1 >= i || !graph.in_one_segment(update, i)) continue;
      ++to;
      report.lines.push_back(fmt::format("{} of {} elements: after {}", n.range->path(), numel(n.call.in[1]),
                                         graph.nodes[size_t(to)].range->path()));
      with.put_after(to, n);
      with.drop({i});
    }
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
