// p = softmax(scale · s) over the last dimension, with an optional causal mask: scaling, masking and softmax in one pass.
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

void infer_softmax(const OpCall& c, OutSpecs& out) {
  rules::check_float(c, 0);
  check(c.in(0).rank() >= (c.attrs_as<SoftmaxAttrs>().causal ? 2 : 1), "softmax: {} has too few dimensions",
        c.in(0).dims());
  rules::same_as(0, c, out);
}
void grad_softmax(GradCall& g) { g.emit_to(0, softmax_backward, g.attrs(), g.output(0), g.grad(0)); }

Cost cost_softmax(const OpCall& c, const Outputs&) { return {0, 5.0 * double(c.in(0).numel())}; }

Sample sample(Dims dims, SoftmaxAttrs a) { return {{{dims}}, Attrs::of(a)}; }
Sample sample2(Dims dims, SoftmaxAttrs a) { return {{{dims}, {dims}}, Attrs::of(a)}; }

}  // namespace

const OpDef softmax{.name = "softmax",
                    .infer = infer_softmax,
                    .grad = grad_softmax,
                    .cost = cost_softmax,
                    .kernel = &KernelTable::softmax,
                    .autocast = AutocastPolicy::internal,
                    .saves_outputs = 1,
                    .samples = {sample({3, 5}, {}), sample({2, 7, 7}, {0.5, true, 0}), sample({2, 3, 9}, {1, true, 6}),
                                sample({1, 4, 6}, {2, true, -2}), sample({2, 1030}, {0.1, false, 0})}};

const OpDef softmax_backward{.name = "softmax_backward",
                             .infer = infer_softmax,
                             .cost = cost_softmax,
                             .kernel = &KernelTable::softmax_backward,
                             .accumulates = 1,
                             .samples = {sample2({2, 7, 7}, {0.5, true, 0}), sample2({3, 300}, {})}};

}  // namespace ops

Tensor softmax(const Tensor& x, const SoftmaxAttrs& attrs) { return dispatch(ops::softmax, Attrs::of(attrs), x)[0]; }

}  // namespace sinter
