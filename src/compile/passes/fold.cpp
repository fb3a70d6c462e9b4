// A weight's gradient dyᵀ·x that only the optimizer reads is never stored: one call multiplies and updates, tile by
// tile. That saves writing and reading four bytes for every parameter, and the GEMM hides behind the update's own
// traffic. Not where updates wait for all gradients (clipping, loss scaling), nor where gradients are kept after the
// step or added up over several.
#include <algorithm>
#include <fmt/format.h>

#include "backend/choices.h"
#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "compile/updates.h"
#include "core/folded_update.h"

namespace sinter::compile {
namespace {

// Whether the target has a kernel, and one that is worth it.
bool has_kernel(const Graph& graph, const Node& gradient) {
  if (graph.target.type != DeviceType::cuda) return true;
  Placed dy = input(gradient, 0), x = input(gradient, 1);
  return dy.ref.dtype == DType::bf16 && x.ref.dtype == DType::bf16 && fits_hopper(graph, {dy, x}) &&
         choices::folding_pays(dy.ref, gradient.call.out[0], graph.target.multiprocessors);
}

bool touches(const Node& n, int buffer, Span span) {
  bool found = false;
  n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
    found |= o.buffer == buffer && span_of(t, o.offset).overlaps(span);
  });
  return found;
}

// Weights that one call updates, each by the product that is its gradient.
struct Folded {
  std::vector<Placed> operands;          // as core/folded_update.h has them, without the state
  std::vector<const RangeNode*> ranges;  // of the gradients
  std::vector<int> gradients;            // the calls that go
  int last = -1;                         // the last call that needs a weight as it was
  Cost cost = {};
  double bytes = 0;
};

Folded folded(const Graph& graph, int at, int update_at, int64_t first_element) {
  const Node &gradient = graph.nodes[size_t(at)], &update = graph.nodes[size_t(update_at)];
  const TensorRef& shape = gradient.call.out[0];
  Node part = part_of(update, first_element, first_element + numel(shape));
  auto matrix = [&](int i) {
    TensorRef ref = shape;
    ref.dtype = part.call.in[i].dtype;
    return Placed{part.in[i], ref};
  };
  Folded f{{input(gradient, 0), input(gradient, 1), matrix(0), matrix(2), matrix(3)},
           {gradient.range},
           {at},
           at,
           gradient.cost};
  if (part.call.n_in > 5) f.operands.push_back(matrix(5));
  // It changes the weight, which others may still read: this layer's own input gradient does.
  for (int i = at + 1; i < update_at; ++i)
    for (size_t k = folded_master; k < f.operands.size(); ++k)
      if (touches(graph.nodes[size_t(i)], f.operands[k].at.buffer, span_of(f.operands[k].ref, f.operands[k].at.offset)))
        f.last = i;
  f.cost.other_flops += part.cost.other_flops;
  f.bytes = gradient.bytes + part.bytes - 2.0 * double(numel(shape) * size_of(shape.dtype));
  return f;
}

// What is multiplied is still there when the call comes.
bool is_intact(const Graph& graph, const Folded& f) {
  for (size_t w = 0; w < f.gradients.size(); ++w)
    for (size_t k : {folded_dy, folded_x})
      if (is_written(graph, f.operands[w * folded_operands + k], f.gradients[w] + 1, f.last + 1)) return false;
  return true;
}

// Note [Weights of a layer]: a call has nothing to update until its first tiles are multiplied, and nothing to multiply
// while it updates its last. So weights that follow each other share one, as far as they belong to one module: then the
// next weight is multiplied while the last is updated. Their GEMMs wait for the last of them, a layer's at most.
bool share_a_call(const Graph& graph, const OpDef& op, Folded& into, const Folded& next) {
  bool whole = into.operands.size() % folded_operands == 0 && next.operands.size() == folded_operands;
  auto tokens = [](const Folded& f) { return workspace::rows(f.operands[folded_x].ref); };
  if (graph.target.type != DeviceType::cuda || !whole || into.gradients.size() == max_folded ||
      tokens(into) != tokens(next))
    return false;
  Folded both = into;
  auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(both.operands, next.operands), append(both.ranges, next.ranges), append(both.gradients, next.gradients);
  both.last = std::max(into.last, next.last);
  both.cost.matmul_flops += next.cost.matmul_flops, both.cost.other_flops += next.cost.other_flops;
  both.bytes += next.bytes;
  if (range_above(both.ranges, op.name)->parent->kind != RangeKind::module || !is_intact(graph, both)) return false;
  into = both;
  return true;
}

}  // namespace

Report passes::fold(Graph& graph, const PassOptions&) {
  Report report;
  if (!prepare_first(graph)) return report;
  size_t count = graph.nodes.size();
  Replacement with(graph);
  for (size_t u = 0; u < count; ++u) {
    const Node update = graph.nodes[u];
    const OpDef* with_product = update.op->with_product;
    if (!with_product) continue;
    Span all = span_of(update.call.in[1], update.in[1].offset);
    int64_t size = size_of(update.call.in[1].dtype);
    std::vector<std::pair<int64_t, int64_t>> taken;  // elements
    std::vector<Folded> calls;
    for (size_t w = 0; w < u; ++w) {
      const Node& gradient = graph.nodes[w];
      if (gradient.op->kind != OpKind::weight_gradient || gradient.out[0].buffer != update.in[1].buffer) continue;
      Span span = span_of(gradient.call.out[0], gradient.out[0].offset);
      bool free = !gradient.call.accumulates(0) && all.contains(span) &&
                  span.end - span.begin == numel(gradient.call.out[0]) * size && has_kernel(graph, gradient) &&
                  graph.buffers[size_t(gradient.out[0].buffer)].is_unread(span);
      for (size_t i = 0; i < count && free; ++i) {
        if (i == w || i == u || !touches(graph.nodes[i], gradient.out[0].buffer, span)) continue;
        free = false;
        if (graph.nodes[i].is_communication())
          report.lines.push_back(fmt::format("{} not: {} stands between it and its update", gradient.range->path(),
                                             graph.nodes[i].op->name));
      }
      if (!free) continue;
      int64_t first = (span.begin - all.begin) / size;
      if (!graph.in_one_segment(int(w), int(u))) continue;
      Folded f = folded(graph, int(w), int(u), first);
      if (!is_intact(graph, f)) continue;
      report.lines.push_back(fmt::format("{} into its weight's update: {} bytes saved", gradient.range->path(),
                                         2 * (span.end - span.begin)));
      taken.emplace_back(first, first + numel(gradient.call.out[0]));
      if (calls.empty() || !share_a_call(graph, *with_product, calls.back(), f)) calls.push_back(f);
    }
    for (Folded& f : calls) {
      f.operands.insert(f.operands.begin(), input(update, 4));
      Node n = new_call(graph, *with_product, range_above(f.ranges, with_product->name),
                        Attrs::of(AdamWProductAttrs{update.call.attrs.as<AdamWAttrs>()}), f.operands, {});
      n.cost = f.cost, n.bytes = f.bytes;
      n.segment = update.segment;
      with.put_after(f.last, n);
      with.drop(f.gradients);
    }
    if (taken.empty()) continue;
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    taken.emplace_back(update.call.in[0].dims[0], 0);
    for (auto [begin, end] : taken) {
      if (begin > at) with.put_after(int(u), part_of(update, at, begin));
      at = end;
    }
    with.drop({int(u)});
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
