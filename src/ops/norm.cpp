// Normalisation over the last dimension, reduced in fp32 whatever the type of x.
//   rms_norm    y = x · rsqrt(mean(x²) + eps) · w
//   layer_norm  y = (x − mean) · rsqrt(var + eps) · w + b
#include "ops/row_program.h"
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

void check_weight(const OpCall& c, int input) {
  rules::check_float(c, 0);
  check(c.in(input).rank() == 1 && c.in(0).rank() >= 1 && c.in(input).size(0) == c.in(0).size(-1),
        "{}: weight {} must match the last dimension of x {}", c.op.name, c.in(input).dims(), c.in(0).dims());
}

void infer_rms_norm(const OpCall& c, OutSpecs& out) {
  check_weight(c, 1);
  DType x = c.in(0).dtype();
  // Under mixed precision the result feeds GEMMs, so it is written in their type at once.
  out.add(c.in(0).dims(), c.autocast && x != DType::f64 ? *c.autocast : x);
  out.add(c.in(0).dims().without_last(), rules::wide(x));  // the reciprocal root that backward reuses
}
void grad_rms_norm(GradCall& g) {
  g.emit_all({0, 1}, rms_norm_backward, g.attrs(), g.input(0), g.input(1), g.output(1), g.grad(0));
}
void infer_rms_norm_backward(const OpCall& c, OutSpecs& out) {
  rules::same_as(0, c, out);
  out.add(c.in(1).dims(), rules::wide(c.in(0).dtype()));
}

void infer_layer_norm(const OpCall& c, OutSpecs& out) {
  check_weight(c, 1);
  check_weight(c, 2);
  rules::same_as(0, c, out);
  out.add(c.in(0).dims().without_last(), rules::wide(c.in(0).dtype()));
  out.add(c.in(0).dims().without_last(), rules::wide(c.in(0).dtype()));
}
void grad_layer_norm(GradCall& g) {
  g.emit_all({0, 1, 2}, layer_norm_backward, g.attrs(), g.input(0), g.input(1), g.output(1), g.output(2), g.grad(0));
}
void infer_layer_norm_backward(const OpCall& c, OutSpecs& out) {
  rules::same_as(0, c, out);
  out.add(c.in(1).dims(), rules::wide(c.in(0).dtype()));
  out.add(c.in(1).dims(), rules::wide(c.in(0).dtype()));
}

using F = PointwiseFn;
using workspace::last_dim;

// Statistics that are rounded on their way have no program.
bool has_wide_statistics(const KernelCall& c) {
  return !c.attrs.as<NormAttrs>().low_precision_statistics || !is_16bit(c.in[0].dtype);
}

// y = x · r · w, r = 1 / sqrt(mean(x²) + eps)
bool rows_of_rms_norm(RowProgram& p) {
  const KernelCall& c = p.call();
  p.need_rows(last_dim(c.in[0]));
  int x = p.read({0}), w = p.read({1, Varies::column});
  int mean = p.map(F::div, p.row_dot(x, x), p.constant(double(last_dim(c.in[0]))));
  int root = p.map(F::sqrt, p.affine(mean, 1, c.attrs.as<NormAttrs>().eps));
  int r = p.map(F::div, p.constant(1), root);
  p.write({0}, p.map(F::mul, p.map(F::mul, x, r), w));
  p.write({1, Varies::row}, r);
  return has_wide_statistics(c);
}

// x̂ = x·r, g = w∘dy: dx = r·(g − x̂·mean(g∘x̂)), dw = Σ over rows of dy∘x̂
bool rows_of_rms_norm_backward(RowProgram& p) {
  const KernelCall& c = p.call();
  p.need_rows(last_dim(c.in[0]));
  int x = p.read({0}), w = p.read({1, Varies::column}), r = p.read({2, Varies::row}), dy = p.read({3});
  int normalised = p.map(F::mul, x, r), weighted = p.map(F::mul, dy, w);
  int dw = p.column_dot(dy, normalised);
  int mean = p.map(F::div, p.row_dot(weighted, normalised), p.constant(double(last_dim(c.in[0]))));
  int rest = p.fma(p.map(F::neg, normalised), mean, weighted);
  p.write({0}, c.accumulates(0) ? p.fma(r, rest, p.read_sum({0})) : p.map(F::mul, r, rest));
  p.write({1, Varies::column}, dw, c.accumulates(1));
  return has_wide_statistics(c);
}

Cost cost_norm(const OpCall& c, const Outputs&) { return {0, 4.0 * double(c.in(0).numel())}; }

const Attrs default_attrs = Attrs::of(NormAttrs{});

}  // namespace

const OpDef rms_norm{.name = "rms_norm",
                     .infer = infer_rms_norm,
                     .grad = grad_rms_norm,
                     .cost = cost_norm,
                     .kernel = &KernelTable::rms_norm,
                     .autocast = AutocastPolicy::internal,
                     .saves_inputs = 0b11,
                     .saves_outputs = 0b10,
                     .cheap = true,
                     .accepts = rules::rows,
                     .row_program = rows_of_rms_norm,
                     .samples = {{{{{2, 3, 8}}, {{8}}}, default_attrs}, {{{{5, 257}}, {{257}}}, default_attrs}}};

const OpDef rms_norm_backward{
    .name = "rms_norm_backward",
    .infer = infer_rms_norm_backward,
    .cost = cost_norm,
    .workspace = workspace::norm_backward,
    .kernel = &KernelTable::rms_norm_backward,
    .accumulates = 0b11,
    .accepts = rules::rows,
    .row_program = rows_of_rms_norm_backward,
    .samples = {{{{{5, 257}}, {{257}}, {{5}, SampleInput::positive, 0, true}, {{5, 257}}}, default_attrs},
                {{{{300, 64}}, {{64}}, {{300}, SampleInput::positive, 0, true}, {{300, 64}}}, default_attrs}}};

const OpDef layer_norm{
    .name = "layer_norm",
    .infer = infer_layer_norm,
    .grad = grad_layer_norm,
    .cost = cost_norm,
    .kernel = &KernelTable::layer_norm,
    .autocast = AutocastPolicy::fp32,
    .saves_inputs = 0b11,
    .saves_outputs = 0b110,
    .accepts = rules::rows,
    .samples = {{{{{2, 3, 8}}, {{8}}, {{8}}}, default_attrs}, {{{{5, 257}}, {{257}}, {{257}}}, default_attrs}}};

const OpDef layer_norm_backward{
    .name = "layer_norm_backward",
    .infer = infer_layer_norm_backward,
    .cost = cost_norm,
    .workspace = workspace::norm_backward,
    .kernel = &KernelTable::layer_norm_backward,
    .accumulates = 0b111,
    .accepts = rules::rows,
    .samples = {
        {{{{5, 257}}, {{257}}, {{5}, SampleInput::normal, 0, true}, {{5}, SampleInput::positive, 0, true}, {{5, 257}}},
         default_attrs}}};

}  // namespace ops

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return dispatch(ops::rms_norm, Attrs::of(NormAttrs{eps}), x, weight)[0];
}
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return dispatch(ops::layer_norm, Attrs::of(NormAttrs{eps}), x, weight, bias)[0];
}

}  // namespace sinter
