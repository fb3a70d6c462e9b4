#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

Dims reduced_dims(const Dims& dims, uint32_t mask, bool keepdim) {
  Dims r;
  for (int d = 0; d < dims.rank(); ++d) {
    if (!(mask >> d & 1)) r.push_back(dims[d]);
    else if (keepdim) r.push_back(1);
  }
  return r;
}

void infer_sum(const OpCall& c, OutSpecs& out) {
  rules::check_float(c, 0);
  const auto& a = c.attrs_as<ReduceAttrs>();
  out.add(reduced_dims(c.in(0).dims(), a.dims, a.keepdim), c.in(0).dtype());
}

void grad_sum(GradCall& g) {
  Dims dims = g.input_dims(0);
  Tensor kept = sinter::reshape(g.grad(0), reduced_dims(dims, g.attrs().as<ReduceAttrs>().dims, true));
  g.give(0, sinter::expand(kept, dims));
}

Cost cost_sum(const OpCall& c, const Outputs&) { return {0, double(c.in(0).numel())}; }

}  // namespace

// y = sum over some dimensions, in fp32 (fp64 for fp64).
const OpDef sum{.name = "sum",
                .infer = infer_sum,
                .grad = grad_sum,
                .cost = cost_sum,
                .workspace = workspace::full_reduction,
                .kernel = &KernelTable::reduce_sum,
                .autocast = AutocastPolicy::fp32,
                .accumulates = 1,
                .writes_any_float = 1,
                .accepts = rules::any_strides,
                .samples = {{{{{2, 3, 4}}}, Attrs::of(ReduceAttrs{0b111, false})},
                            {{{{5, 37}}}, Attrs::of(ReduceAttrs{0b01, false})},
                            {{{{5, 37}}}, Attrs::of(ReduceAttrs{0b10, true})},
                            {{{{3, 4, 5}}}, Attrs::of(ReduceAttrs{0b101, false})}}};

}  // namespace ops

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  uint32_t mask = dims.empty() ? (1u << x.rank()) - 1 : 0;
  for (int d : dims) {
    x.size(d);
    mask |= 1u << (d < 0 ? d + x.rank() : d);
  }
  return dispatch(ops::sum, Attrs::of(ReduceAttrs{mask, keepdim}), x)[0];
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  Tensor s = sum(x, dims, keepdim);
  return affine(s, double(s.numel()) / double(x.numel()), 0);
}

}  // namespace sinter
