// Kernel fusion by rows, for CUDA: an op that works on whole rows (normalisation, softmax, SwiGLU) and its pointwise
// neighbours become one call, a kernel over rows: the residual add before a norm, the cast after a norm's gradient.
// Such an op has a program of rows (OpDef::row_program); a call is only replaced when it joins another.
#include "backend/generated/fused_source.h"
#include "backend/workspace.h"
#include "compile/passes/fusion.h"
#include "ops/row_program.h"
#include "ops/rules.h"

namespace sinter::compile {
namespace {

using workspace::last_dim;

// Vector accesses of 16 bytes must be possible.
bool takes_vectors(const Operand& o, const TensorRef& t) {
  if ((t.dtype != DType::f32 && !is_16bit(t.dtype)) || o.offset % 16 != 0 || last_dim(t) % 4 != 0 || numel(t) == 0)
    return false;
  for (int d = 0; d < t.rank - 1; ++d)
    if (t.dims[d] != 1 && t.strides[d] * size_of(t.dtype) % 16 != 0) return false;
  return true;
}
bool are_rows(const Operand& o, const TensorRef& t) { return t.rank > 0 && is_contiguous(t) && takes_vectors(o, t); }

// Writes an op's program (OpDef::row_program) into a group.
class RowsOfCall : public RowProgram {
 public:
  RowsOfCall(FusionGroup& group, const Node& n) : group_(group), n_(n) {}
  bool fits() const { return fits_; }

  const KernelCall& call() const override { return n_.call; }
  void need_rows(int64_t length) override { group_.need_rows(length); }
  int read(const RowOperand& input) override {
    return group_.read(place(input, n_.in[input.index], n_.call.in[input.index]));
  }
  int read_sum(const RowOperand& output) override { return group_.read_sum(place_of_output(output)); }
  int step(const FusedStep& s) override { return group_.step(s); }
  void write(const RowOperand& output, int value, bool accumulate) override {
    group_.write(place_of_output(output), value, accumulate);
  }

 private:
  Place place_of_output(const RowOperand& o) { return place(o, n_.out[o.index], n_.call.out[o.index]); }
  Place place(const RowOperand& o, const Operand& at, const TensorRef& t) {
    fits_ = fits_ && (o.varies == Varies::row ? t.dtype == DType::f32 : are_rows(at, t));
    Place p{at, t, o.varies};
    if (o.columns == Columns::all || !fits_) return p;
    int64_t width = p.ref.dims[p.ref.rank - 1] /= 2;
    if (o.columns == Columns::right_half) p.operand.offset += width * size_of(t.dtype);
    return p;
  }

  FusionGroup& group_;
  const Node& n_;
  bool fits_ = true;  // its operands so far
};
bool expand_rows(FusionGroup& g, const Node& n) {
  RowsOfCall rows(g, n);
  return n.op->row_program(rows) && rows.fits();
}

// A pointwise call on columns of a wider tensor, which `fuse` leaves alone: parts of a joined GEMM.
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
  for (int i = 0; i < n.call.n_in; ++i) check(n.in[i], whole.call.input(i));
  for (int j = 0; j < n.call.n_out; ++j) check(n.out[j], whole.call.output(j));
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
  for (int j = 0; j < p.n_out; ++j) g.write({n.out[j], n.call.out[j]}, values[p.out[j]], false);
  return true;
}

FusionGroup::Expand expansion(const Graph& graph, const Node& n) {
  // Whatever joins is read and written in vectors; a pointwise call may see its rows in any shape.
  auto aligned = [](const Operand& o, const TensorRef& t) { return o.offset % 16 == 0 && numel(t) > 0; };
  bool fits = true;
  bool fused = n.op->kind == OpKind::fused;
  if (is_pointwise(graph, n) || (fused && n.call.attrs.as<FusedAttrs>().program->row_length == 0)) {
    n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) { fits = fits && aligned(o, t); });
    return !fits ? nullptr : fused ? FusionGroup::Expand(elements_fused_before) : expand_pointwise;
  }
  if (is_pointwise_on_parts(graph, n)) {
    const TensorRef& out = n.call.out[0];
    n.for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
      fits = fits && aligned(o, t) && (numel(t) == 1 || last_dim(t) == last_dim(out));
    });
    return fits && last_dim(out) <= max_fused_row && last_dim(out) % 4 == 0 ? pointwise_on_parts : nullptr;
  }
  return n.op->row_program && last_dim(n.call.in[0]) <= max_fused_row ? expand_rows : nullptr;
}

}  // namespace

Report passes::rows(Graph& graph, const PassOptions&) {
  if (graph.target.type != DeviceType::cuda) return {};
  return fuse_groups(graph, expansion, [](const FusionGroup& g) { return g.has_rows(); });
}

}  // namespace sinter::compile
