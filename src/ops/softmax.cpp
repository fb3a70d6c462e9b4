// p = softmax(scale · s) over the last dimension, with an optional causal mask: scaling,
// masking and softmax in one pass.
#include <cmath>

#include "ops/row_program.h"
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

using F = PointwiseFn;
using workspace::last_dim;

constexpr double log2_e = 1.4426950408889634;

// `beyond` in the columns that a row does not see.
int masked(RowProgram& p, int value, double beyond) {
  const auto& attrs = p.call().attrs.as<SoftmaxAttrs>();
  if (!attrs.causal) return value;
  FusedStep s{F::copy, {value, value, value}, {0, beyond}, StepKind::causal};
  const TensorRef& t = p.call().in[0];
  s.causal_rows = t.dims[t.rank - 2], s.causal_offset = attrs.causal_offset;
  return p.step(s);
}

bool rows_of_softmax(RowProgram& p) {
  p.need_rows(last_dim(p.call().in[0]));
  int scaled = masked(p, p.affine(p.read({0}), p.call().attrs.as<SoftmaxAttrs>().scale * log2_e, 0), -HUGE_VAL);
  int power = masked(p, p.exp2(p.map(F::sub, scaled, p.row_max(scaled))), 0);
  int sum = p.row_sum(power);
  int weights = p.map(F::mul, power, p.map(F::div, p.constant(1), sum));
  p.write({0}, masked(p, weights, 0));  // a row that sees nothing is all zero
  return true;
}

// ds = scale · p∘(dp − rowsum(dp∘p)); what is masked has p = 0, and dp there may be anything
bool rows_of_softmax_backward(RowProgram& p) {
  const KernelCall& c = p.call();
  p.need_rows(last_dim(c.in[0]));
  int weights = masked(p, p.read({0}), 0), dp = masked(p, p.read({1}), 0);
  int rest = p.map(F::sub, dp, p.row_dot(weights, dp));
  p.write({0}, p.map(F::mul, weights, p.affine(rest, c.attrs.as<SoftmaxAttrs>().scale, 0)), c.accumulates(0));
  return true;
}

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
                    .row_program = rows_of_softmax,
                    .samples = {sample({3, 5}, {}), sample({2, 7, 7}, {0.5, true, 0}), sample({2, 3, 9}, {1, true, 6}),
                                sample({1, 4, 6}, {2, true, -2}), sample({2, 1030}, {0.1, false, 0})}};

const OpDef softmax_backward{.name = "softmax_backward",
                             .infer = infer_softmax,
                             .cost = cost_softmax,
                             .kernel = &KernelTable::softmax_backward,
                             .accumulates = 1,
                             .row_program = rows_of_softmax_backward,
                             .samples = {sample2({2, 7, 7}, {0.5, true, 0}), sample2({3, 300}, {})}};

}  // namespace ops

Tensor softmax(const Tensor& x, const SoftmaxAttrs& attrs) { return dispatch(ops::softmax, Attrs::of(attrs), x)[0]; }

}  // namespace sinter
