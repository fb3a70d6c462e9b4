// GEMMs. One kernel; the ops differ in which operands are folded (backend/matmul_problem.h).
#include "backend/matmul_problem.h"
#include "ops/rules.h"

namespace sinter {
namespace ops {
namespace {

constexpr MatmulAttrs linear_attrs{false, true, true, false};
constexpr MatmulAttrs input_grad_attrs{false, false, true, false};
constexpr MatmulAttrs weight_grad_attrs{true, false, true, true};

bool accepts_matrix(const TensorRef& t, int input, const Attrs& attrs) {
  const auto& a = attrs.as<MatmulAttrs>();
  return matmul_operand_ok(t, input == 0 ? a.fold_a : a.fold_b);
}

void check_types(const OpCall& c) {
  rules::check_float(c, 0);
  check(c.in(0).dtype() == c.in(1).dtype(), "{}: operands have types {} and {}; cast one, or use autocast", c.op.name,
        name_of(c.in(0).dtype()), name_of(c.in(1).dtype()));
}

// Note [Padded rows]: rows whose length is not a multiple of 16 bytes (vocab 50257) would cost cuBLASLt its fast
// kernels in this GEMM and in every one that reads the result, so the rows are laid out at a stride that is. 64
// elements keep the stride a multiple of 128 bytes in 16-bit types.
void add_matrix(OutSpecs& out, const Dims& dims, DType dtype) {
  int64_t n = dims[dims.rank() - 1];
  if (n < 64 || n * size_of(dtype) % 16 == 0) return out.add(dims, dtype);
  Dims padded = dims.with_last((n + 63) / 64 * 64);
  out.add_strided(dims, dtype, contiguous_strides(padded));
}

void infer_matmul(const OpCall& c, OutSpecs& out) {
  check_types(c);
  const auto& attrs = c.attrs_as<MatmulAttrs>();
  Dims a = c.in(0).dims(), b = c.in(1).dims();
  check(a.rank() >= 2 && a.rank() == b.rank(),
        "matmul: operands {} and {} must have the same number of dimensions, at least 2", a, b);
  int r = a.rank();
  for (int d = 0; d < r - 2; ++d) check(a[d] == b[d], "matmul: batch sizes of {} and {} differ", a, b);
  int64_t m = a[r - (attrs.transpose_a ? 1 : 2)], ka = a[r - (attrs.transpose_a ? 2 : 1)];
  int64_t n = b[r - (attrs.transpose_b ? 2 : 1)], kb = b[r - (attrs.transpose_b ? 1 : 2)];
  check(ka == kb, "matmul: inner sizes {} and {} of {}{} and {}{} differ", ka, kb, a, attrs.transpose_a ? "ᵀ" : "", b,
        attrs.transpose_b ? "ᵀ" : "");
  Dims dims = a;
  dims[r - 2] = m;
  dims[r - 1] = n;
  add_matrix(out, dims, c.in(0).dtype());
}

void grad_matmul(GradCall& g) {
  const auto& at = g.attrs().as<MatmulAttrs>();
  const Tensor& dy = g.grad(0);
  auto emit = [&](int i, const Tensor& x, bool tx, const Tensor& y, bool ty) {
    g.emit_to(i, matmul, Attrs::of(MatmulAttrs{tx, ty}), x, y);
  };
  if (g.needs(0)) {
    if (at.transpose_a) emit(0, g.input(1), at.transpose_b, dy, true);
    else emit(0, dy, false, g.input(1), !at.transpose_b);
  }
  if (g.needs(1)) {
    if (at.transpose_b) emit(1, dy, true, g.input(0), at.transpose_a);
    else emit(1, g.input(0), !at.transpose_a, dy, false);
  }
}

void infer_linear(const OpCall& c, OutSpecs& out) {
  check_types(c);
  const Tensor &x = c.in(0), &w = c.in(1);
  check(w.rank() == 2 && x.rank() >= 2 && x.size(-1) == w.size(1),
        "linear: x {} needs a weight of shape (out, {}), not {}", x.dims(), x.size(-1), w.dims());
  add_matrix(out, x.dims().with_last(w.size(0)), x.dtype());
}

void grad_linear(GradCall& g) {
  if (g.needs(0)) g.emit_to(0, linear_input_grad, Attrs::of(input_grad_attrs), g.grad(0), g.input(1));
  if (g.needs(1)) g.emit_to(1, linear_weight_grad, Attrs::of(weight_grad_attrs), g.grad(0), g.input(0));
}

void infer_input_grad(const OpCall& c, OutSpecs& out) {
  check_types(c);
  check(c.in(0).size(-1) == c.in(1).size(0), "linear_input_grad: dy {} does not fit the weight {}", c.in(0).dims(),
        c.in(1).dims());
  add_matrix(out, c.in(0).dims().with_last(c.in(1).size(1)), c.in(0).dtype());
}
// The weight's gradient is wide: it is summed over all tokens and added to a master.
void infer_weight_grad(const OpCall& c, OutSpecs& out) {
  check_types(c);
  check(c.in(0).dims().without_last() == c.in(1).dims().without_last(),
        "linear_weight_grad: dy {} and x {} differ in rows", c.in(0).dims(), c.in(1).dims());
  out.add({c.in(0).size(-1), c.in(1).size(-1)}, rules::wide(c.in(0).dtype()));
}

Cost cost_matmul(const OpCall& c, const Outputs& out) {
  const auto& at = c.attrs_as<MatmulAttrs>();
  const Tensor& a = c.in(0);
  int64_t k = at.transpose_a ? (at.fold_a ? a.numel() / a.size(-1) : a.size(-2)) : a.size(-1);
  return {2.0 * double(out[0].numel()) * double(k), 0};
}

OpDef product(const char* name, OpKind kind, void (*infer)(const OpCall&, OutSpecs&), void (*grad)(GradCall&),
              std::vector<Sample> samples) {
  return {.name = name,
          .infer = infer,
          .grad = grad,
          .cost = cost_matmul,
          .workspace = workspace::matmul,
          .kernel = &KernelTable::matmul,
          .kind = kind,
          .autocast = AutocastPolicy::lower,
          .saves_inputs = 0b11,
          .accumulates = 1,
          .writes_fp32 = 1,
          .accepts = accepts_matrix,
          .samples = std::move(samples)};
}

Sample sample(Dims a, Dims b, MatmulAttrs at) { return {{{a}, {b}}, Attrs::of(at)}; }

}  // namespace

const OpDef matmul = product(
    "matmul", OpKind::product, infer_matmul, grad_matmul,
    {sample({3, 4}, {4, 5}, {}), sample({2, 3, 4, 5}, {2, 3, 5, 6}, {}), sample({2, 4, 3}, {2, 5, 4}, {true, true}),
     sample({2, 5, 8}, {2, 7, 8}, {false, true}), sample({1, 70}, {70, 1}, {}), sample({2, 65, 66}, {2, 66, 67}, {}),
     sample({45, 70}, {70, 83}, {}), sample({70, 100}, {37, 70}, {true, true})});
const OpDef linear = product("linear", OpKind::product, infer_linear, grad_linear,
                             {sample({2, 3, 8}, {5, 8}, linear_attrs), sample({7, 16}, {65, 16}, linear_attrs),
                              sample({3, 20, 33}, {49, 33}, linear_attrs)});
const OpDef linear_input_grad = product("linear_input_grad", OpKind::product, infer_input_grad, nullptr,
                                        {sample({2, 3, 5}, {5, 8}, input_grad_attrs)});
const OpDef linear_weight_grad = product("linear_weight_grad", OpKind::weight_gradient, infer_weight_grad, nullptr,
                                         {sample({2, 3, 5}, {2, 3, 8}, weight_grad_attrs)});

}  // namespace ops

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  return dispatch(ops::matmul, Attrs::of(MatmulAttrs{transpose_a, transpose_b}), a, b)[0];
}
Tensor linear(const Tensor& x, const Tensor& weight) {
  return dispatch(ops::linear, Attrs::of(ops::linear_attrs), x, weight)[0];
}

}  // namespace sinter
