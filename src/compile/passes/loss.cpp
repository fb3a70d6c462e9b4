// Cross-entropy and its gradient as one call that turns the logits into their gradient: a row is read once from memory
// and written once, and there is one matrix of (positions, vocabulary) instead of two.
#include <algorithm>
#include <fmt/format.h>

#include "compile/passes.h"
#include "compile/rewrite.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// The step's own, and only these calls touch it from the first of them on.
bool is_only_for(const Graph& graph, int buffer, std::initializer_list<int> calls) {
  const Buffer& b = graph.buffers[size_t(buffer)];
  if (b.external || b.output) return false;
  for (size_t i = size_t(*calls.begin()); i < graph.nodes.size(); ++i) {
    bool touches = false;
    graph.nodes[i].for_each_access(
        [&](const Operand& o, const TensorRef&, bool, bool) { touches = touches || o.buffer == buffer; });
    if (touches && std::find(calls.begin(), calls.end(), int(i)) == calls.end()) return false;
  }
  return true;
}
// … and this call is the only one that writes it.
bool is_written_only_by(const Graph& graph, int buffer, int call) {
  const Buffer& b = graph.buffers[size_t(buffer)];
  bool others = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    graph.nodes[i].for_each_access([&](const Operand& o, const TensorRef&, bool, bool writes) {
      others = others || (writes && o.buffer == buffer && int(i) != call);
    });
  return !b.external && !b.output && !others;
}

int backward_of(const Graph& graph, int forward) {
  const Node& f = graph.nodes[size_t(forward)];
  for (size_t i = size_t(forward) + 1; i < graph.nodes.size(); ++i) {
    const Node& b = graph.nodes[i];
    if (b.op == &ops::cross_entropy_backward && same_place(input(b, 0), input(f, 0)) &&
        same_place(input(b, 2), output(f, 1)))
      return int(i);
  }
  return -1;
}

bool can_join(const Graph& graph, int forward, int backward) {
  const Node &f = graph.nodes[size_t(forward)], &b = graph.nodes[size_t(backward)];
  return graph.in_one_segment(forward, backward) && same_place(input(f, 1), input(b, 1)) &&
         same_layout(b.call.in[0], b.call.out[0]) && !b.call.accumulate &&
         is_only_for(graph, f.in[0].buffer, {forward, backward}) &&
         is_only_for(graph, f.out[1].buffer, {forward, backward}) &&
         is_written_only_by(graph, b.out[0].buffer, backward) &&
         !is_touched(graph, output(f, 0), forward + 1, backward) &&  // the loss comes later than it did
         !is_written(graph, input(f, 1), forward, backward);
}

}  // namespace

Report passes::loss(Graph& graph, const PassOptions&) {
  Report report;
  Replacement with(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != &ops::cross_entropy) continue;
    int forward = int(i), backward = backward_of(graph, forward);
    if (backward < 0 || !can_join(graph, forward, backward)) continue;
    const Node f = graph.nodes[i], b = graph.nodes[size_t(backward)];
    const RangeNode* range = range_above({b.range}, ops::cross_entropy_in_place.name);
    Node both = new_call(graph, ops::cross_entropy_in_place, range, {}, {input(f, 0), input(f, 1), input(b, 3)},
                         {output(f, 0)});
    both.cost = {0, f.cost.other_flops + b.cost.other_flops};
    both.segment = f.segment;
    with.put(backward, std::move(both));
    with.drop({forward, backward});
    int64_t moved = f.in[0].offset - b.out[0].offset;
    auto follow = [&](Operand& o) {
      if (o.buffer == b.out[0].buffer) o = {f.in[0].buffer, o.offset + moved};
    };
    for (size_t n = size_t(backward) + 1; n < graph.nodes.size(); ++n)
      for (Operand& o : graph.nodes[n].in) follow(o);
    report.lines.push_back(fmt::format("{}: {} bytes of logits become their gradient in place", f.range->path(),
                                       graph.buffers[size_t(f.in[0].buffer)].bytes));
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
