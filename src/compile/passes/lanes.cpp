// Lanes: what only writes memory that outlives the step (weight gradients, updates of parameters) runs beside the chain
// of calls that lead to the first layer's gradient. Small GEMMs leave multiprocessors idle that the other lane can
// use. On the CPU a single chain has work for all threads, but not all the time: there the side lane is for updates
// alone, which nobody waits for (Note [Idle time] in backend/cpu/stream.h). Collectives have a lane of their own: they
// mostly wait for other ranks.
#include <algorithm>
#include <fmt/format.h>

#include "backend/choices.h"
#include "compile/passes.h"
#include "compile/updates.h"
#include "core/folded_update.h"

namespace sinter::compile {
namespace {

constexpr int slack = 24;  // calls: about a layer and a half of a Transformer's backward pass

int64_t folded_elements(const Graph& graph) {
  int64_t n = 0;
  for (const Node& node : graph.nodes)
    if (node.op->kind == OpKind::product_update)
      for (int i = 0; i < folded_weights(node.call); ++i) n += numel(node.call.in[folded_input(i, folded_master)]);
  return n;
}

bool only_outlives(const Graph& graph, const Node& n) {
  bool outlives = true;
  n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool writes) {
    outlives = outlives && (!writes || graph.buffers[size_t(o.buffer)].external);
  });
  return outlives;
}

// -1: it stays in the main one, with scratch memory of its own.
int lane_of(const Graph& graph, const Node& n) {
  if (n.is_host()) return -1;
  if (n.is_communication()) return communication_lane;
  if (graph.target.type == DeviceType::cpu)
    return is_update(n) || n.op->kind == OpKind::product_update ? side_lane : -1;
  return n.chain > 0 ? strip_lane(n.chain) : only_outlives(graph, n) ? side_lane : -1;
}

}  // namespace

Report passes::lanes(Graph& graph, const PassOptions&) {
  Report report;
  double share = choices::share_of_updates(graph.target.type, folded_elements(graph));
  int aside = 0, chained = 0, communicated = 0, scratch[max_lanes];
  std::fill_n(scratch, max_lanes, -1);
  for (Node& n : graph.nodes) {
    if (graph.target.type == DeviceType::cpu) n.chain = 0;  // all threads work on one, then on the next
    int lane = lane_of(graph, n);
    if (lane < 0) continue;
    n.lane = lane;
    ++(lane == communication_lane ? communicated : n.chain > 0 ? chained : aside);
    if (n.op->kind == OpKind::product_update) {
      auto attrs = n.call.attrs.as<AdamWProductAttrs>();
      attrs.share = share;
      n.call.attrs = Attrs::of(attrs);
    }
    if (n.workspace.buffer < 0) continue;
    // A lane's calls follow each other: one piece of scratch memory serves them all.
    int& common = scratch[n.lane];
    if (common < 0) common = n.workspace.buffer;
    Buffer& shared = graph.buffers[size_t(common)];
    shared.bytes = std::max(shared.bytes, graph.buffers[size_t(n.workspace.buffer)].bytes);
    n.workspace.buffer = common;
  }
  graph.lane_slack = slack;
  if (aside) report.lines.push_back(fmt::format("{} of {} calls in the side lane", aside, graph.nodes.size()));
  if (communicated) report.lines.push_back(fmt::format("{} collectives in the communication lane", communicated));
  if (chained) report.lines.push_back(fmt::format("{} calls of independent chains in {} lanes", chained, strip_lanes));
  return report;
}

}  // namespace sinter::compile
