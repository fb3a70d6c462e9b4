// On the CPU, large fp32 products go to our own kernel (Note [Packed products] in backend/cpu/packed_product.cpp), whose memory for packed panels
// is part of the plan.
#include <fmt/format.h>

#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "core/folded_update.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

using workspace::last_dim;

// With less than this neither kernel is clearly the faster one (docs/results/cpu-compiled/small_products_two_threads.txt).
constexpr int64_t least_across = 64, least_k = 64, least_products = int64_t(1) << 22;

bool is_large(int64_t m, int64_t n, int64_t k) {
  return std::min(m, n) >= least_across && k >= least_k && m * n * k >= least_products;
}

bool is_large_product(const Node& n) {
  if (n.op->kernel != &KernelTable::matmul || n.call.in[0].dtype != DType::f32) return false;
  MatmulProblem p;
  return matmul_problem(n.call, p) && p.outer * p.inner == 1 && is_large(p.m, p.n, p.k);
}

// The kernel updates a single fp32 weight; several, and those of 16-bit models, have copies.
bool has_large_product(const Node& n) {
  if (n.op != &ops::adamw_product || folded_input(0, folded_copy) < n.call.n_in) return false;
  const TensorRef &dy = n.call.in[folded_input(0, folded_dy)], &x = n.call.in[folded_input(0, folded_x)];
  return x.dtype == DType::f32 && is_large(last_dim(dy), last_dim(x), workspace::rows(x));
}

// The same call with other attributes, and the scratch memory that goes with them.
void change(Graph& graph, Node& n, const Attrs& attrs) {
  std::vector<Placed> in, out;
  for (int i = 0; i < n.call.n_in; ++i) in.push_back(input(n, i));
  for (int j = 0; j < n.call.n_out; ++j) out.push_back(output(n, j));
  Node changed = new_call(graph, *n.op, n.range, attrs, in, out, n.call.math, n.call.accumulate);
  changed.cost = n.cost, changed.bytes = n.bytes, changed.chain = n.chain;
  n = std::move(changed);
}

}  // namespace

Report passes::pack(Graph& graph, const PassOptions&) {
  Report report;
  if (graph.target.type != DeviceType::cpu) return report;
  for (Node& n : graph.nodes) {
    if (is_large_product(n)) {
      auto attrs = n.call.attrs.as<MatmulAttrs>();
      attrs.packed = true;
      change(graph, n, Attrs::of(attrs));
    } else if (has_large_product(n)) {
      auto attrs = n.call.attrs.as<AdamWProductAttrs>();
      attrs.packed = true;
      change(graph, n, Attrs::of(attrs));
    } else {
      continue;
    }
    report.lines.push_back(n.range->path());
  }
  return report;
}

}  // namespace sinter::compile
