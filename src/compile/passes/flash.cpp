// Flash attention for attention that is spelled out: two products around a softmax, and their backward pass, become the
// attention op, which computes the same without storing scores or probabilities. Arbitrary masks, and models that read
// the probabilities, are left as they are.
#include <fmt/format.h>

#include "compile/passes.h"
#include "compile/passes/attention_pattern.h"
#include "ops/attention.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

void replace(Graph& graph, const SpelledAttention& a, bool deterministic, Replacement& with) {
  auto node = [&](int i) -> const Node& { return graph.nodes[size_t(i)]; };
  const RangeNode* range = range_above({node(a.scores).range, node(a.softmax).range, node(a.values).range}, "flash");
  MathMode math = node(a.scores).call.math;
  DType type = a.q.ref.dtype;
  AttentionAttrs attrs;
  attrs.scale = a.mask.scale;
  attrs.causal = a.mask.causal;
  attrs.causal_offset = a.mask.causal_offset;
  attrs.deterministic = deterministic;
  Placed statistics = new_tensor(graph, {a.batch, a.heads, a.queries}, type == DType::f64 ? DType::f64 : DType::f32,
                                 MemoryCategory::activation, range);
  Node forward = new_call(graph, ops::attention, range, Attrs::of(attrs), {a.q, a.k, a.v}, {a.o, statistics}, math);
  forward.cost = attention_cost(a.q.ref, a.k.ref, attrs, 2);
  forward.segment = node(a.scores).segment;
  with.put(a.values, std::move(forward));
  with.drop(a.calls());
  if (!a.has_backward()) return;

  int first = a.dv < 0 ? a.dp : std::min(a.dp, a.dv);
  range = range_above({node(a.dp).range, node(a.softmax_backward).range}, "flash_backward");
  // The kernel writes contiguous gradients of the operands' type, all at once. Others are copied to where
  // they belong when they were due.
  struct Grad {
    int call;
    const Placed *to, *like;
    Placed written = {};
  } grads[] = {{a.dq, &a.grad_q, &a.q}, {a.dk, &a.grad_k, &a.k}, {a.dv, &a.grad_v, &a.v}};
  for (Grad& g : grads) {
    const TensorRef& like = g.like->ref;
    bool direct = g.call >= 0 && !node(g.call).call.accumulate && g.to->ref.dtype == type && is_contiguous(g.to->ref) &&
                  !is_touched(graph, *g.to, first, g.call);
    g.written = direct ? *g.to : new_tensor(graph, {like.dims, 4}, type, MemoryCategory::temporary, range);
    if (direct || g.call < 0) continue;
    Node copy = new_call(graph, ops::cast, range, Attrs::of(CastAttrs{g.to->ref.dtype}), {g.written}, {*g.to}, math,
                         node(g.call).call.accumulate);
    with.put(g.call, std::move(copy));
  }
  Node backward =
      new_call(graph, ops::attention_backward, range, Attrs::of(attrs), {a.q, a.k, a.v, a.o, statistics, a.grad_o},
               {grads[0].written, grads[1].written, grads[2].written}, math);
  backward.cost = attention_cost(a.q.ref, a.k.ref, attrs, 5);
  backward.segment = node(a.softmax_backward).segment;
  with.put_first(first, std::move(backward));
}

}  // namespace

Report passes::flash(Graph& graph, const PassOptions& options) {
  Report report;
  Replacement with(graph);
  for (const SpelledAttention& a : find_attention(graph)) {
    if (!has_kernels(graph, a)) continue;
    replace(graph, a, options.deterministic, with);
    int64_t matrix = a.batch * a.heads * a.queries * a.keys * size_of(a.q.ref.dtype);
    report.lines.push_back(fmt::format("{} {}: matrices of {} bytes are never stored",
                                       graph.nodes[size_t(a.softmax)].range->path(),
                                       a.has_backward() ? "and its backward pass" : "", matrix));
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
