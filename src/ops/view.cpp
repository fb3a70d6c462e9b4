// Views: new shapes over the same memory. No kernel runs.
#include "ops/rules.h"

namespace sinter {
namespace {

Dims dims_of(const ViewAttrs& a) { return {a.dims, a.rank}; }
Attrs view_attrs(const Dims& dims) {
  ViewAttrs a;
  a.rank = dims.rank();
  std::copy(dims.begin(), dims.end(), a.dims);
  return Attrs::of(a);
}

// Strides of x seen with other sizes, or nothing where only a copy could give that view. The old dimensions are walked
// from the right; each maximal run that lies evenly in memory must be covered exactly by some of the new ones.
std::optional<Dims> reshaped_strides(const Tensor& x, const Dims& to) {
  if (x.numel() == 0 || x.rank() == 0) return contiguous_strides(to);
  Dims strides = to;
  int j = to.rank() - 1;
  int64_t base = x.stride(-1), old_run = 1, new_run = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    old_run *= x.size(i);
    bool run_goes_on = i > 0 && (x.size(i - 1) == 1 || x.stride(i - 1) == old_run * base);
    if (run_goes_on) continue;
    for (; j >= 0 && (new_run < old_run || to[j] == 1); --j) {
      strides[j] = new_run * base;
      new_run *= to[j];
    }
    if (new_run != old_run) return std::nullopt;
    if (i > 0) base = x.stride(i - 1);
    old_run = new_run = 1;
  }
  return j < 0 ? std::optional(strides) : std::nullopt;
}

}  // namespace

namespace ops {
namespace {

void infer_reshape(const OpCall& c, OutSpecs& out) {
  Dims to = dims_of(c.attrs_as<ViewAttrs>());
  auto strides = reshaped_strides(c.in(0), to);
  check(strides.has_value(), "reshape: {} with strides {} cannot be seen as {} without a copy", c.in(0).dims(),
        c.in(0).strides(), to);
  out.add_view(0, to, c.in(0).dtype(), *strides, 0);
}
void grad_reshape(GradCall& g) { g.give(0, sinter::reshape(g.grad(0), g.input_dims(0))); }

void infer_transpose(const OpCall& c, OutSpecs& out) {
  const auto& a = c.attrs_as<TransposeAttrs>();
  Dims dims = c.in(0).dims(), strides = c.in(0).strides();
  std::swap(dims[a.dim0], dims[a.dim1]);
  std::swap(strides[a.dim0], strides[a.dim1]);
  out.add_view(0, dims, c.in(0).dtype(), strides, 0);
}
void grad_transpose(GradCall& g) {
  const auto& a = g.attrs().as<TransposeAttrs>();
  g.give(0, sinter::transpose(g.grad(0), a.dim0, a.dim1));
}

void infer_slice(const OpCall& c, OutSpecs& out) {
  const auto& a = c.attrs_as<SliceAttrs>();
  Dims dims = c.in(0).dims();
  check(a.start >= 0 && a.length >= 0 && a.start + a.length <= dims[int(a.dim)],
        "slice: [{}, {}) of dimension {} reaches outside {}", a.start, a.start + a.length, a.dim, dims);
  dims[int(a.dim)] = a.length;
  out.add_view(0, dims, c.in(0).dtype(), c.in(0).strides(), a.start * c.in(0).stride(int(a.dim)));
}
void grad_slice(GradCall& g) {
  const auto& a = g.attrs().as<SliceAttrs>();
  Tensor all = zeros(g.input_dims(0), g.grad(0).dtype(), g.grad(0).device());
  copy_into(sinter::slice(all, int(a.dim), a.start, a.length), g.grad(0));
  g.give(0, all);
}

void infer_expand(const OpCall& c, OutSpecs& out) {
  Dims to = dims_of(c.attrs_as<ViewAttrs>()), from = c.in(0).dims();
  check(rules::broadcast("expand", from, to) == to, "expand: {} does not broadcast to {}", from, to);
  Dims strides = to;
  int extra = to.rank() - from.rank();
  for (int d = 0; d < to.rank(); ++d)
    strides[d] = d < extra || (from[d - extra] == 1 && to[d] != 1) ? 0 : c.in(0).stride(d - extra);
  out.add_view(0, to, c.in(0).dtype(), strides, 0);
}
void grad_expand(GradCall& g) { g.give(0, rules::sum_to(g.grad(0), g.input_dims(0))); }

OpDef view_op(const char* name, void (*infer)(const OpCall&, OutSpecs&), void (*grad)(GradCall&),
              std::vector<Sample> samples) {
  return {.name = name, .infer = infer, .grad = grad, .kind = OpKind::view, .samples = std::move(samples)};
}

}  // namespace

const OpDef reshape = view_op("reshape", infer_reshape, grad_reshape,
                              {{{{{2, 6}}}, view_attrs({3, 4})}, {{{{2, 3, 4}}}, view_attrs({6, 1, 4})}});
const OpDef transpose =
    view_op("transpose", infer_transpose, grad_transpose, {{{{{2, 3, 4}}}, Attrs::of(TransposeAttrs{1, 2})}});
const OpDef slice =
    view_op("slice", infer_slice, grad_slice,
            {{{{{5, 4}}}, Attrs::of(SliceAttrs{0, 1, 3})}, {{{{2, 7}}}, Attrs::of(SliceAttrs{1, 2, 4})}});
const OpDef expand = view_op("expand", infer_expand, grad_expand, {{{{{3, 1}}}, view_attrs({2, 3, 4})}});

}  // namespace ops

Tensor reshape(const Tensor& x, Dims dims) {
  int64_t known = 1;
  int unknown = -1;
  for (int d = 0; d < dims.rank(); ++d) {
    if (dims[d] != -1) {
      known *= dims[d];
      continue;
    }
    check(unknown < 0, "reshape: only one size of {} may be -1", dims);
    unknown = d;
  }
  if (unknown >= 0 && known > 0) dims[unknown] = x.numel() / known;
  check(dims.numel() == x.numel(), "reshape: {} has {} elements, {} has {}", x.dims(), x.numel(), dims, dims.numel());
  if (dims == x.dims()) return x;
  return dispatch(ops::reshape, view_attrs(dims), reshaped_strides(x, dims) ? x : copy(x))[0];
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  x.size(dim0), x.size(dim1);  // refuses dimensions that do not exist
  TransposeAttrs a{dim0 < 0 ? dim0 + x.rank() : dim0, dim1 < 0 ? dim1 + x.rank() : dim1};
  return dispatch(ops::transpose, Attrs::of(a), x)[0];
}

Tensor slice(const Tensor& x, int dim, int64_t start, int64_t length) {
  x.size(dim);
  return dispatch(ops::slice, Attrs::of(SliceAttrs{dim < 0 ? dim + x.rank() : dim, start, length}), x)[0];
}

Tensor expand(const Tensor& x, const Dims& dims) {
  return dims == x.dims() ? x : dispatch(ops::expand, view_attrs(dims), x)[0];
}

}  // namespace sinter
