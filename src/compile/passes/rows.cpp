// Row fusion, for CUDA: an op that works on whole rows (normalisation, softmax, SwiGLU) and its pointwise neighbours become one call, a kernel
// over rows: the residual add before a norm, the cast after a norm's gradient. Each op is written here as a program of rows; a call is only
// replaced when it joins another.
#include <cmath>

#include "backend/generated/fused_source.h"
#include "backend/workspace.h"
#include "compile/passes/fusion.h"
#include "ops/rules.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

using workspace::last_dim;
using F = PointwiseFn;

constexpr double log2_e = 1.4426950408889634;

// Vector accesses of 16 bytes must be possible.
bool takes_vectors(const Operand& o, const TensorRef& t) {
  if ((t.dtype != DType::f32 && !is_16bit(t.dtype)) || o.offset % 16 != 0 || last_dim(t) % 4 != 0 || numel(t) == 0)
    return false;
  for (int d = 0; d < t.rank - 1; ++d)
    if (t.dims[d] != 1 && t.strides[d] * size_of(t.dtype) % 16 != 0) return false;
  return true;
}
bool are_rows(const Operand& o, const TensorRef& t) { return t.rank > 0 && is_contiguous(t) && takes_vectors(o, t); }

Place elements(const Operand& o, const TensorRef& t) { return {o, t, Varies::element}; }
Place per_row(const Operand& o, const TensorRef& t) { return {o, t, Varies::row}; }
Place per_column(const Operand& o, const TensorRef& t) { return {o, t, Varies::column}; }

int row_dot(FusionGroup& g, int a, int b) { return g.step({F::copy, {a, b, a}, {}, StepKind::row_dot}); }
int fma(FusionGroup& g, int a, int b, int c) { return g.step({F::copy, {a, b, c}, {}, StepKind::fma}); }

// y = x · r · w, r = 1 / sqrt(mean(x²) + eps)
bool rms_norm(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  g.need_rows(last_dim(c.in[0]));
  int x = g.read(elements(n.in[0], c.in[0])), w = g.read(per_column(n.in[1], c.in[1]));
  int mean = g.map(F::div, row_dot(g, x, x), g.constant(double(last_dim(c.in[0]))));
  int root = g.map(F::sqrt, g.step({F::affine, {mean, mean, mean}, {1, c.attrs.as<NormAttrs>().eps}}));
  int r = g.map(F::div, g.constant(1), root);
  g.write(elements(n.out[0], c.out[0]), g.map(F::mul, g.map(F::mul, x, r), w), false);
  g.write(per_row(n.out[1], c.out[1]), r, false);
  return true;
}

// x̂ = x·r, g = w∘dy: dx = r·(g − x̂·mean(g∘x̂)), dw = Σ over rows of dy∘x̂
bool rms_norm_backward(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  g.need_rows(last_dim(c.in[0]));
  int x = g.read(elements(n.in[0], c.in[0])), w = g.read(per_column(n.in[1], c.in[1]));
  int r = g.read(per_row(n.in[2], c.in[2])), dy = g.read(elements(n.in[3], c.in[3]));
  int normalised = g.map(F::mul, x, r), weighted = g.map(F::mul, dy, w);
  int dw = g.step({F::copy, {dy, normalised, dy}, {}, StepKind::column_dot});
  int mean = g.map(F::div, row_dot(g, weighted, normalised), g.constant(double(last_dim(c.in[0]))));
  int rest = fma(g, g.map(F::neg, normalised), mean, weighted);
  Place dx = elements(n.out[0], c.out[0]);
  g.write(dx, c.accumulates(0) ? fma(g, r, rest, g.read_sum(dx)) : g.map(F::mul, r, rest), false);
  g.write(per_column(n.out[1], c.out[1]), dw, c.accumulates(1));
  return true;
}

FusedStep masked(const Node& n, int value, double beyond) {
  FusedStep s{F::copy, {value, value, value}, {0, beyond}, StepKind::causal};
  const TensorRef& t = n.call.in[0];
  s.causal_rows = t.dims[t.rank - 2], s.causal_offset = n.call.attrs.as<SoftmaxAttrs>().causal_offset;
  return s;
}

bool softmax(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  const auto& attrs = c.attrs.as<SoftmaxAttrs>();
  g.need_rows(last_dim(c.in[0]));
  auto mask = [&](int value, double beyond) { return attrs.causal ? g.step(masked(n, value, beyond)) : value; };
  int s = g.read(elements(n.in[0], c.in[0]));
  int scaled = mask(g.step({F::affine, {s, s, s}, {attrs.scale * log2_e, 0}}), -HUGE_VAL);
  int most = g.step({F::copy, {scaled, scaled, scaled}, {}, StepKind::row_max});
  int below = g.map(F::sub, scaled, most);
  int power = mask(g.step({F::copy, {below, below, below}, {}, StepKind::exp2}), 0);
  int sum = g.step({F::copy, {power, power, power}, {}, StepKind::row_sum});
  int p = mask(g.map(F::mul, power, g.map(F::div, g.constant(1), sum)), 0);  // a row that sees nothing is all zero
  g.write(elements(n.out[0], c.out[0]), p, false);
  return true;
}

// ds = scale · p∘(dp − rowsum(dp∘p)); what is masked has p = 0, and dp there may be anything
bool softmax_backward(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  const auto& attrs = c.attrs.as<SoftmaxAttrs>();
  g.need_rows(last_dim(c.in[0]));
  auto mask = [&](int value) { return attrs.causal ? g.step(masked(n, value, 0)) : value; };
  int p = mask(g.read(elements(n.in[0], c.in[0]))), dp = mask(g.read(elements(n.in[1], c.in[1])));
  int rest = g.map(F::sub, dp, row_dot(g, p, dp));
  int scaled = g.step({F::affine, {rest, rest, rest}, {attrs.scale, 0}});
  g.write(elements(n.out[0], c.out[0]), g.map(F::mul, p, scaled), c.accumulates(0));
  return true;
}

// The left or right half of each row.
Place half(const Operand& o, const TensorRef& t, bool right) {
  Place p = elements(o, t);
  int64_t width = p.ref.dims[p.ref.rank - 1] /= 2;
  if (right) p.operand.offset += width * size_of(t.dtype);
  return p;
}

bool swiglu(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  g.need_rows(last_dim(c.out[0]));
  int gate = g.read(half(n.in[0], c.in[0], false)), up = g.read(half(n.in[0], c.in[0], true));
  g.write(elements(n.out[0], c.out[0]), g.map(F::mul, g.map(F::silu, gate), up), false);
  return true;
}

bool swiglu_backward(FusionGroup& g, const Node& n) {
  const KernelCall& c = n.call;
  g.need_rows(last_dim(c.in[1]));
  int gate = g.read(half(n.in[0], c.in[0], false)), up = g.read(half(n.in[0], c.in[0], true));
  int dy = g.read(elements(n.in[1], c.in[1]));
  g.write(half(n.out[0], c.out[0], false), g.map(F::silu_backward, gate, g.map(F::mul, dy, up)), false);
  g.write(half(n.out[0], c.out[0], true), g.map(F::mul, dy, g.map(F::silu, gate)), false);
  return true;
}

// A pointwise call on columns of a wider tensor, which `fuse` leaves alone: parts of a joined product.
bool is_pointwise_on_parts(const Graph& graph, const Node& n) {
  Node whole = n;  // as if its tensors were
  bool fits = true, part = false;
  auto check = [&](const Operand& o, TensorRef& t) {
    if (numel(t) == 1 || is_contiguous(t)) return;
    part = true;
    fits = fits && rules::rows(t, 0, {}) && takes_vectors(o, t);
    int64_t stride = 1;
    for (int d = t.rank - 1; d >= 0; stride *= t.dims[d--]) t.strides[d] = stride;
  };
  for (int i = 0; i < n.call.n_in; ++i) check(n.in[i], whole.call.in[i]);
  for (int j = 0; j < n.call.n_out; ++j) check(n.out[j], whole.call.out[j]);
  return part && fits && is_pointwise(graph, whole);
}
bool pointwise_on_parts(FusionGroup& g, const Node& n) {
  g.need_rows(last_dim(n.call.out[0]));
  return expand_pointwise(g, n);
}

// What `fuse` made.
bool elements_fused_before(FusionGroup& g, const Node& n) {
  const FusedProgram& p = *n.call.attrs.as<FusedAttrs>().program;
  int values[max_fused_inputs + max_fused_steps];
  for (int i = 0; i < p.n_in; ++i) values[i] = g.read({n.in[i], n.call.in[i], p.in_varies[i]});
  for (int k = 0; k < p.n_steps; ++k) {
    FusedStep s = p.steps[k];
    for (int& from : s.from) from = values[from];
    values[p.n_in + k] = g.step(s);
  }
  for (int j = 0; j < p.n_out; ++j) g.write(elements(n.out[j], n.call.out[j]), values[p.out[j]], false);
  return true;
}

struct RowOp {
  const OpDef* op;
  FusionGroup::Expand expand;
};

FusionGroup::Expand expansion(const Graph& graph, const Node& n) {
  static const RowOp row_ops[] = {{&ops::rms_norm, rms_norm}, {&ops::rms_norm_backward, rms_norm_backward},
                                  {&ops::softmax, softmax},   {&ops::softmax_backward, softmax_backward},
                                  {&ops::swiglu, swiglu},     {&ops::swiglu_backward, swiglu_backward}};
  // Whatever joins is read and written in vectors; a pointwise call may see its rows in any shape.
  auto aligned = [](const Operand& o, const TensorRef& t) { return o.offset % 16 == 0 && numel(t) > 0; };
  bool fits = true;
  if (is_pointwise(graph, n) || (n.op == &ops::fused && n.call.attrs.as<FusedAttrs>().program->row_length == 0)) {
    n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) { fits = fits && aligned(o, t); });
    return !fits ? nullptr : n.op == &ops::fused ? FusionGroup::Expand(elements_fused_before) : expand_pointwise;
  }
  if (is_pointwise_on_parts(graph, n)) {
    const TensorRef& out = n.call.out[0];
    n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
      fits = fits && aligned(o, t) && (numel(t) == 1 || last_dim(t) == last_dim(out));
    });
    return fits && last_dim(out) <= max_fused_row && last_dim(out) % 4 == 0 ? pointwise_on_parts : nullptr;
  }
  for (const RowOp& r : row_ops) {
    if (n.op != r.op) continue;
    bool is_norm = n.op == &ops::rms_norm || n.op == &ops::rms_norm_backward;
    if (is_norm && n.call.attrs.as<NormAttrs>().low_precision_statistics && is_16bit(n.call.in[0].dtype))
      return nullptr;
    bool is_swiglu = n.op == &ops::swiglu || n.op == &ops::swiglu_backward;
    if (last_dim(n.call.in[0]) > max_fused_row || (is_swiglu && last_dim(n.call.in[0]) % 16 != 0)) return nullptr;
    for (int i = 0; i < n.call.n_in; ++i) {
      bool statistic = n.op == &ops::rms_norm_backward && i == 2;
      fits = fits && (statistic ? n.call.in[i].dtype == DType::f32 : are_rows(n.in[i], n.call.in[i]));
    }
    for (int j = 0; j < n.call.n_out; ++j) {
      bool statistic = n.op == &ops::rms_norm && j == 1;
      fits = fits && (statistic ? n.call.out[j].dtype == DType::f32 : are_rows(n.out[j], n.call.out[j]));
    }
    return fits ? r.expand : nullptr;
  }
  return nullptr;
}

}  // namespace

Report passes::rows(Graph& graph, const PassOptions&) {
  if (graph.target != DeviceType::cuda) return {};
  return fuse_groups(graph, expansion, [](const FusionGroup& g) { return g.has_rows(); });
}

}  // namespace sinter::compile
