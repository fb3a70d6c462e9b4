// A weight's gradient dyᵀ·x that only the optimizer reads is never stored: one call multiplies and updates, tile by tile. That saves writing
// and reading four bytes for every parameter, and the product hides behind the update's own traffic. Not where updates wait for all
// gradients (clipping, loss scaling), nor where gradients are kept after the step or added up over several.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "compile/updates.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// Note [Where folding pays]: a tile of 128 × 128 is one multiprocessor's work, however many tokens it sums over, while a product of its own
// can be split along them. So with many tokens and few tiles the product is better left alone. The rates are what an H200 does with either
// (docs/results, h200-compiled); folding may be a little behind, as it also takes a call and a gradient's memory away.
bool pays(const Node& gradient) {
  const TensorRef &dy = gradient.call.in[0], &weight = gradient.call.out[0];
  constexpr double multiprocessors = 132, worth = 1.1, launch = 8;  // µs, as are the times below
  double tokens = double(numel(dy)) / double(dy.dims[dy.rank - 1]), elements = double(numel(weight));
  double tiles = std::ceil(double(weight.dims[0]) / 128) * std::ceil(double(weight.dims[1]) / 128);
  double folded = std::max(std::ceil(tiles / multiprocessors) * tokens * 0.007, elements * 26 / 3.3e6) + launch;
  double apart = 2 * tokens * elements / 750e6 + elements * 30 / 4e6 + launch;
  return folded <= worth * apart;
}

// Whether the target has a kernel, and one that is worth it.
bool has_kernel(const Graph& graph, const Node& gradient) {
  if (graph.target != DeviceType::cuda) return true;
  Placed dy = input(gradient, 0), x = input(gradient, 1);
  return dy.ref.dtype == DType::bf16 && x.ref.dtype == DType::bf16 && fits_hopper(graph, {dy, x}) && pays(gradient);
}

bool touches(const Node& n, int buffer, Span span) {
  bool found = false;
  n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
    found |= o.buffer == buffer && span_of(t, o.offset).overlaps(span);
  });
  return found;
}

// The call that stands for a gradient and its part of an update.
Node folded(Graph& graph, const Node& gradient, const Node& update, int64_t first_element) {
  const TensorRef& shape = gradient.call.out[0];
  Node part = part_of(update, first_element, first_element + numel(shape));
  auto operand = [](const Node& n, int input) { return Placed{n.in[input], n.call.in[input]}; };
  auto matrix = [&](int input) {
    TensorRef ref = shape;
    ref.dtype = part.call.in[input].dtype;
    return Placed{part.in[input], ref};
  };
  const RangeNode* range = range_above({gradient.range}, ops::adamw_product.name);
  Attrs attrs = Attrs::of(AdamWProductAttrs{update.call.attrs.as<AdamWAttrs>()});
  Placed dy = operand(gradient, 0), x = operand(gradient, 1), master = matrix(0), m = matrix(2), v = matrix(3),
         state = operand(part, 4);
  Node n = part.call.n_in > 5
               ? new_call(graph, ops::adamw_product, range, attrs, {dy, x, master, m, v, state, matrix(5)}, {})
               : new_call(graph, ops::adamw_product, range, attrs, {dy, x, master, m, v, state}, {});
  n.cost = gradient.cost;
  n.cost.other_flops += part.cost.other_flops;
  n.bytes = gradient.bytes + part.bytes - 2.0 * double(numel(shape) * size_of(shape.dtype));
  return n;
}

}  // namespace

Report fold_updates(Graph& graph) {
  Report report;
  if (!prepare_first(graph)) return report;
  size_t count = graph.nodes.size();
  Replacement with(graph);
  for (size_t u = 0; u < count; ++u) {
    const Node update = graph.nodes[u];
    if (update.op != &ops::adamw) continue;
    Span all = span_of(update.call.in[1], update.in[1].offset);
    int64_t size = size_of(update.call.in[1].dtype);
    std::vector<std::pair<int64_t, int64_t>> taken;  // elements
    for (size_t w = 0; w < u; ++w) {
      const Node& gradient = graph.nodes[w];
      if (gradient.op != &ops::linear_weight_grad || gradient.out[0].buffer != update.in[1].buffer) continue;
      Span span = span_of(gradient.call.out[0], gradient.out[0].offset);
      bool free = !gradient.call.accumulates(0) && all.contains(span) &&
                  span.end - span.begin == numel(gradient.call.out[0]) * size && has_kernel(graph, gradient) &&
                  graph.buffers[size_t(gradient.out[0].buffer)].is_unread(span);
      for (size_t i = 0; i < count && free; ++i)
        free = i == w || i == u || !touches(graph.nodes[i], gradient.out[0].buffer, span);
      if (!free) continue;
      int64_t first = (span.begin - all.begin) / size;
      Node n = folded(graph, gradient, update, first);
      // It changes the weight, which others may still read: this layer's own input gradient does.
      size_t last = w;
      for (size_t i = w + 1; i < u; ++i)
        for (int k = 2; k < n.call.n_in; ++k)
          if (k != 5 && touches(graph.nodes[i], n.in[k].buffer, span_of(n.call.in[k], n.in[k].offset))) last = i;
      report.lines.push_back(fmt::format("{} into its weight's update: {} bytes saved", gradient.range->path(),
                                         2 * (span.end - span.begin)));
      with.put_after(int(last), n);
      with.drop({int(w)});
      taken.emplace_back(first, first + numel(gradient.call.out[0]));
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
