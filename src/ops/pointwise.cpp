// Element by element, with broadcasting: one kernel entry, a variant per function.
#include "ops/rules.h"

namespace sinter {

Dims rules::broadcast(const char* op, const Dims& a, const Dims& b) {
  Dims r = a.rank() >= b.rank() ? a : b;
  const Dims& other = a.rank() >= b.rank() ? b : a;
  for (int i = 0; i < other.rank(); ++i) {
    int64_t& n = r[r.rank() - 1 - i];
    int64_t m = other[other.rank() - 1 - i];
    check(n == m || n == 1 || m == 1,
          "{}: shapes {} and {} do not broadcast (sizes, from the right, must be equal or 1)", op, a, b);
    if (n == 1) n = m;
  }
  return r;
}

Tensor rules::sum_to(const Tensor& grad, const Dims& dims) {
  if (grad.dims() == dims) return grad;
  std::vector<int> reduced;
  int extra = grad.rank() - dims.rank();
  for (int d = 0; d < grad.rank(); ++d)
    if (d < extra || (dims[d - extra] == 1 && grad.size(d) != 1)) reduced.push_back(d);
  return reshape(reduced.empty() ? grad : sinter::sum(grad, reduced, true), dims);
}

namespace ops {
namespace {

using rules::sum_to;

void infer_pointwise(const OpCall& c, OutSpecs& out) {
  Dims dims = c.in(0).dims();
  DType type = c.in(0).dtype();
  for (int i = 1; i < c.n_in(); ++i) {
    if (!(c.in(i).dims() == dims)) dims = rules::broadcast(c.op.name, dims, c.in(i).dims());
    type = promote(type, c.in(i).dtype());
  }
  out.add(dims, type);
}

void infer_float(const OpCall& c, OutSpecs& out) {
  for (int i = 0; i < c.n_in(); ++i) rules::check_float(c, i);
  infer_pointwise(c, out);
}

void infer_where(const OpCall& c, OutSpecs& out) {
  check(c.in(0).dtype() == DType::boolean, "where: the mask must be bool, not {}", name_of(c.in(0).dtype()));
  out.add(rules::broadcast("where", rules::broadcast("where", c.in(0).dims(), c.in(1).dims()), c.in(2).dims()),
          promote(c.in(1).dtype(), c.in(2).dtype()));
}

void infer_cast(const OpCall& c, OutSpecs& out) { out.add(c.in(0).dims(), c.attrs_as<CastAttrs>().to); }
void infer_copy(const OpCall& c, OutSpecs& out) { rules::same_as(0, c, out); }

// A tensor that needs no summing is handed on as it is; a kernel runs only where the shape changed.
void give_summed(GradCall& g, int i, const Tensor& grad) {
  if (g.needs(i)) g.give(i, sum_to(grad, g.input_dims(i)));
}

void grad_add(GradCall& g) {
  give_summed(g, 0, g.grad(0));
  give_summed(g, 1, g.grad(0));
}
void grad_sub(GradCall& g) {
  give_summed(g, 0, g.grad(0));
  if (g.needs(1)) give_summed(g, 1, sinter::neg(g.grad(0)));
}
void grad_mul(GradCall& g) {
  if (g.needs(0)) give_summed(g, 0, sinter::mul(g.grad(0), g.input(1)));
  if (g.needs(1)) give_summed(g, 1, sinter::mul(g.grad(0), g.input(0)));
}
void grad_div(GradCall& g) {
  Tensor da = sinter::div(g.grad(0), g.input(1));
  give_summed(g, 0, da);
  if (g.needs(1)) give_summed(g, 1, sinter::neg(sinter::mul(da, g.output(0))));
}
void grad_where(GradCall& g) {
  Tensor zero = zeros({}, g.grad(0).dtype(), g.grad(0).device());
  if (g.needs(1)) give_summed(g, 1, sinter::where(g.input(0), g.grad(0), zero));
  if (g.needs(2)) give_summed(g, 2, sinter::where(g.input(0), zero, g.grad(0)));
}
void grad_neg(GradCall& g) { g.give(0, sinter::neg(g.grad(0))); }
void grad_exp(GradCall& g) { g.give(0, sinter::mul(g.grad(0), g.output(0))); }
void grad_log(GradCall& g) { g.give(0, sinter::div(g.grad(0), g.input(0))); }
void grad_sqrt(GradCall& g) { g.give(0, sinter::affine(sinter::div(g.grad(0), g.output(0)), 0.5, 0)); }
void grad_rsqrt(GradCall& g) {
  Tensor y3 = sinter::mul(sinter::square(g.output(0)), g.output(0));
  g.give(0, sinter::affine(sinter::mul(g.grad(0), y3), -0.5, 0));
}
void grad_square(GradCall& g) { g.give(0, sinter::affine(sinter::mul(g.grad(0), g.input(0)), 2, 0)); }
void grad_affine(GradCall& g) { g.give(0, sinter::affine(g.grad(0), g.attrs().as<AffineAttrs>().alpha, 0)); }
void grad_sigmoid(GradCall& g) { g.emit_to(0, sigmoid_backward, {}, g.output(0), g.grad(0)); }
void grad_tanh(GradCall& g) { g.emit_to(0, tanh_backward, {}, g.output(0), g.grad(0)); }
void grad_silu(GradCall& g) { g.emit_to(0, silu_backward, {}, g.input(0), g.grad(0)); }
void grad_gelu(GradCall& g) { g.emit_to(0, gelu_backward, {}, g.input(0), g.grad(0)); }
void grad_relu(GradCall& g) { g.emit_to(0, relu_backward, {}, g.output(0), g.grad(0)); }
void grad_cast(GradCall& g) { g.give(0, g.grad(0)); }  // `give` casts to the input's type

const std::vector<Sample> two_inputs = {
    {{{{2, 3}}, {{2, 3}}}, {}}, {{{{2, 3, 4}}, {{4}}}, {}}, {{{{3, 1}}, {{2, 1, 5}}}, {}}, {{{{}}, {{7}}}, {}}};
const std::vector<Sample> two_positive = {{{{{2, 3}}, {{2, 3}, SampleInput::positive}}, {}},
                                          {{{{5}}, {{3, 1}, SampleInput::positive}}, {}}};
const std::vector<Sample> same_shape = {{{{{3, 5}}, {{3, 5}}}, {}}};
const std::vector<Sample> one_input = {{{{{2, 3}}}, {}}, {{{{1037}}}, {}}};
const std::vector<Sample> one_positive = {{{{{2, 3}, SampleInput::positive}}, {}},
                                          {{{{257}, SampleInput::positive}}, {}}};

constexpr int fn(PointwiseFn f) { return int(f); }

OpDef pointwise_op(const char* name, PointwiseFn f, void (*grad)(GradCall&), uint32_t saves_inputs,
                   uint32_t saves_outputs, std::vector<Sample> samples,
                   AutocastPolicy policy = AutocastPolicy::promote) {
  return {.name = name,
          .infer = infer_float,
          .grad = grad,
          .cost = rules::per_element,
          .kernel = &KernelTable::pointwise,
          .variant = fn(f),
          .kind = OpKind::pointwise,
          .autocast = policy,
          .saves_inputs = saves_inputs,
          .saves_outputs = saves_outputs,
          .accumulates = 1,
          .writes_any_float = 1,
          .accepts = rules::any_strides,
          .samples = std::move(samples)};
}

OpDef with_infer(OpDef op, void (*infer)(const OpCall&, OutSpecs&)) {
  op.infer = infer;
  return op;
}

OpDef cheap(OpDef op) {
  op.cheap = true;
  return op;
}

}  // namespace

using F = PointwiseFn;
const OpDef add = with_infer(pointwise_op("add", F::add, grad_add, 0, 0, two_inputs), infer_pointwise);
const OpDef sub = with_infer(pointwise_op("sub", F::sub, grad_sub, 0, 0, two_inputs), infer_pointwise);
const OpDef mul = with_infer(pointwise_op("mul", F::mul, grad_mul, 0b11, 0, two_inputs), infer_pointwise);
const OpDef div = pointwise_op("div", F::div, grad_div, 0b10, 1, two_positive);
const OpDef neg = pointwise_op("neg", F::neg, grad_neg, 0, 0, one_input);
const OpDef exp = pointwise_op("exp", F::exp, grad_exp, 0, 1, one_input, AutocastPolicy::fp32);
const OpDef log = pointwise_op("log", F::log, grad_log, 1, 0, one_positive, AutocastPolicy::fp32);
const OpDef sqrt = pointwise_op("sqrt", F::sqrt, grad_sqrt, 0, 1, one_positive);
const OpDef rsqrt = pointwise_op("rsqrt", F::rsqrt, grad_rsqrt, 0, 1, one_positive, AutocastPolicy::fp32);
const OpDef sigmoid = pointwise_op("sigmoid", F::sigmoid, grad_sigmoid, 0, 1, one_input);
const OpDef silu = cheap(pointwise_op("silu", F::silu, grad_silu, 1, 0, one_input));
const OpDef gelu = cheap(pointwise_op("gelu", F::gelu, grad_gelu, 1, 0, one_input));
const OpDef tanh = pointwise_op("tanh", F::tanh, grad_tanh, 0, 1, one_input);
const OpDef relu = pointwise_op("relu", F::relu, grad_relu, 0, 1, one_input);
const OpDef square = pointwise_op("square", F::square, grad_square, 1, 0, one_input);
const OpDef affine =
    pointwise_op("affine", F::affine, grad_affine, 0, 0,
                 {{{{{2, 3}}}, Attrs::of(AffineAttrs{2.5, -1})}, {{{{1037}}}, Attrs::of(AffineAttrs{-0.5, 0})}});
const OpDef sigmoid_backward = pointwise_op("sigmoid_backward", F::sigmoid_backward, nullptr, 0, 0, same_shape);
const OpDef silu_backward = pointwise_op("silu_backward", F::silu_backward, nullptr, 0, 0, same_shape);
const OpDef gelu_backward = pointwise_op("gelu_backward", F::gelu_backward, nullptr, 0, 0, same_shape);
const OpDef tanh_backward = pointwise_op("tanh_backward", F::tanh_backward, nullptr, 0, 0, same_shape);
const OpDef relu_backward = pointwise_op("relu_backward", F::relu_backward, nullptr, 0, 0, same_shape);
const OpDef where = with_infer(pointwise_op("where", F::where, grad_where, 1, 0,
                                            {{{{{4, 5}, SampleInput::boolean}, {{4, 5}}, {{4, 5}}}, {}},
                                             {{{{5}, SampleInput::boolean}, {{4, 5}}, {{}}}, {}}}),
                               infer_where);
const OpDef cast = with_infer(pointwise_op("cast", F::copy, grad_cast, 0, 0,
                                           {{{{{3, 5}}}, Attrs::of(CastAttrs{DType::f32})}}, AutocastPolicy::none),
                              infer_cast);
const OpDef copy =
    with_infer(pointwise_op("copy", F::copy, grad_cast, 0, 0, one_input, AutocastPolicy::none), infer_copy);

}  // namespace ops

Tensor add(const Tensor& a, const Tensor& b) { return dispatch(ops::add, {}, a, b)[0]; }
Tensor sub(const Tensor& a, const Tensor& b) { return dispatch(ops::sub, {}, a, b)[0]; }
Tensor mul(const Tensor& a, const Tensor& b) { return dispatch(ops::mul, {}, a, b)[0]; }
Tensor div(const Tensor& a, const Tensor& b) { return dispatch(ops::div, {}, a, b)[0]; }
Tensor neg(const Tensor& x) { return dispatch(ops::neg, {}, x)[0]; }
Tensor exp(const Tensor& x) { return dispatch(ops::exp, {}, x)[0]; }
Tensor log(const Tensor& x) { return dispatch(ops::log, {}, x)[0]; }
Tensor sqrt(const Tensor& x) { return dispatch(ops::sqrt, {}, x)[0]; }
Tensor rsqrt(const Tensor& x) { return dispatch(ops::rsqrt, {}, x)[0]; }
Tensor sigmoid(const Tensor& x) { return dispatch(ops::sigmoid, {}, x)[0]; }
Tensor silu(const Tensor& x) { return dispatch(ops::silu, {}, x)[0]; }
Tensor gelu(const Tensor& x) { return dispatch(ops::gelu, {}, x)[0]; }
Tensor tanh(const Tensor& x) { return dispatch(ops::tanh, {}, x)[0]; }
Tensor relu(const Tensor& x) { return dispatch(ops::relu, {}, x)[0]; }
Tensor square(const Tensor& x) { return dispatch(ops::square, {}, x)[0]; }
Tensor affine(const Tensor& x, double alpha, double beta) {
  return dispatch(ops::affine, Attrs::of(AffineAttrs{alpha, beta}), x)[0];
}
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) { return dispatch(ops::where, {}, mask, a, b)[0]; }
Tensor cast(const Tensor& x, DType to) {
  return x.dtype() == to ? x : dispatch(ops::cast, Attrs::of(CastAttrs{to}), x)[0];
}
Tensor copy(const Tensor& x) { return dispatch(ops::copy, {}, x)[0]; }
Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : copy(x); }

namespace {
void write_into(const Tensor& to, const Tensor& from, uint32_t accumulate) {
  NoGrad off;
  const Tensor* in[] = {&from};
  Destination d{{&to}, accumulate};
  dispatch_op(ops::cast, in, Attrs::of(CastAttrs{to.dtype()}), &d);
}
}  // namespace

void copy_into(const Tensor& to, const Tensor& from) { write_into(to, from, 0); }
void add_into(const Tensor& to, const Tensor& from) { write_into(to, from, 1); }

}  // namespace sinter
