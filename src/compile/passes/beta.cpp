// A GEMM whose result is then added to something, as a block's output is to the residual stream, adds it while it
// stores: the GEMM's β. The product alone never reaches memory, and is not rounded to 16 bits before the sum.
#include <fmt/format.h>

#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"

namespace sinter::compile {
namespace {

bool is_product(const Node& n) { return n.op->kind == OpKind::product && n.call.n_in == 2 && n.call.accumulate == 0; }
bool is_sum(const Node& n) {
  return n.op->kind == OpKind::pointwise && n.call.variant == int(PointwiseFn::add) && n.call.accumulate == 0;
}

}  // namespace

Report passes::beta(Graph& graph, const PassOptions&) {
  Report report;
  if (graph.target.type != DeviceType::cuda) return report;  // the CPU's GEMMs would have to copy what they add to
  size_t count = graph.nodes.size();
  std::vector<std::vector<size_t>> users(graph.buffers.size());
  for (size_t i = 0; i < count; ++i)
    graph.nodes[i].for_each_access(
        [&](const Operand& o, const TensorRef&, bool, bool) { users[size_t(o.buffer)].push_back(i); });
  std::vector<bool> dead(count);
  for (size_t s = 0; s < count; ++s) {
    Node& sum = graph.nodes[s];
    if (!is_sum(sum)) continue;
    for (int i = 0; i < 2; ++i) {
      const Operand& part = sum.in[i];
      const Buffer& b = graph.buffers[size_t(part.buffer)];
      const std::vector<size_t>& u = users[size_t(part.buffer)];
      if (b.external || b.output || u.size() != 2 || u[1] != s || dead[u[0]]) continue;
      const Node& product = graph.nodes[u[0]];
      const TensorRef &out = sum.call.out[0], &other = sum.call.in[1 - i];
      bool fits =
          graph.in_one_segment(int(u[0]), int(s)) && is_product(product) && numel(product.call.in[0]) > 0 &&
          product.out[0].buffer == part.buffer && same_layout(product.call.out[0], out) &&
          same_layout(sum.call.in[i], out) && same_layout(other, out) && other.dtype == out.dtype &&
          (out.dtype == product.call.in[0].dtype || (out.dtype == DType::f32 && is_16bit(product.call.in[0].dtype)));
      // It moves down to where the sum stood.
      for (int k = 0; k < 2 && fits; ++k) fits = !is_written(graph, input(product, k), int(u[0]) + 1, int(s));
      if (!fits) continue;
      double before = product.bytes + sum.bytes;
      Node n = product;
      n.add_input(sum.in[1 - i], other);
      n.out[0] = sum.out[0], n.call.output(0) = out;
      n.bytes = 0;
      n.for_each_access(
          [&](const Operand&, const TensorRef& t, bool, bool) { n.bytes += double(numel(t) * size_of(t.dtype)); });
      report.lines.push_back(
          fmt::format("{} adds to {}: {:.0f} bytes saved", product.range->path(), sum.range->path(), before - n.bytes));
      dead[u[0]] = true;
      graph.nodes[s] = n;
      break;
    }
  }
  remove_nodes(graph, dead);
  return report;
}

}  // namespace sinter::compile
