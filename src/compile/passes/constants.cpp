// Constants: where a call fills a tensor of the step's own with a number, those who read it know the number. A
// pointwise call of constants alone becomes a fill with its result, computed here, once. One of a tensor and a constant
// becomes a function of the tensor alone, and where that is the tensor itself, readers read that. Fills that nobody
// reads any more are left to `dce`. Every result keeps its bits. Parameters and whatever else exists beyond the step
// are no constants, though the step may not write them: they change between steps.
#include <cmath>
#include <fmt/format.h>

#include "backend/device.h"
#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

using F = PointwiseFn;

// Another device may have other bits than the CPU, which computes here, but for what is rounded once.
bool has_same_bits(const Graph& graph, const Node& n) {
  if (graph.target.type == DeviceType::cpu) return true;
  switch (F(n.call.variant)) {
    case F::add:
    case F::sub:
    case F::mul:
    case F::copy:
    case F::neg:
    case F::square: return true;
    case F::affine: return n.call.attrs.as<AffineAttrs>().beta == 0;
    default: return false;
  }
}

// What the call makes of these numbers, each of its operand's type.
double evaluate(const KernelCall& n, const double* numbers) {
  const KernelTable& cpu = cpu_backend().kernels();
  double memory[max_inputs + 1], result;
  auto single = [](void* data, DType type) {
    TensorRef t;
    t.data = data, t.dtype = type;
    return t;
  };
  OwnedCall call, widen;
  call.variant = n.variant, call.attrs = n.attrs;
  for (int i = 0; i < n.n_in; ++i) {
    call.add_input(single(&memory[i], n.in[i].dtype));
    OwnedCall fill;
    fill.attrs = Attrs::of(FillAttrs{numbers[i]});
    fill.add_output(call.in[i]);
    cpu.fill(fill);
  }
  call.add_output(single(&memory[max_inputs], n.out[0].dtype));
  cpu.pointwise(call);
  widen.variant = int(F::copy);
  widen.add_input(call.out[0]), widen.add_output(single(&result, DType::f64));
  cpu.pointwise(widen);
  return result;
}

// fn(x, c) or fn(c, x) as α·x + β with the same bits, whether the sum is rounded once or twice: α is a power of two, or
// β is −0, which changes no number.
std::optional<AffineAttrs> as_affine(F fn, double c, bool first) {
  int exponent;
  switch (fn) {
    case F::add: return AffineAttrs{1, c};
    case F::sub: return first ? AffineAttrs{-1, c} : AffineAttrs{1, -c};
    case F::mul: return AffineAttrs{c, -0.0};
    case F::div:
      if (first || std::abs(std::frexp(c, &exponent)) != 0.5 || std::abs(exponent) > 64) return {};
      return AffineAttrs{1 / c, -0.0};
    default: return {};
  }
}
bool changes_nothing(const AffineAttrs& a) { return a.alpha == 1 && a.beta == 0 && std::signbit(a.beta); }

class Folding {
 public:
  explicit Folding(Graph& graph) : graph_(graph), known_(graph.buffers.size()), dead_(graph.nodes.size()) {}

  Report run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& n = graph_.nodes[i];
      if (n.op->kind == OpKind::pointwise && n.call.n_out == 1 && all_floats(n)) simplify(int(i), n);
      if (dead_[i]) continue;
      n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool writes) {
        if (writes) known_[size_t(o.buffer)].reset();
      });
      if (n.op->kind == OpKind::fill && fills_a_buffer(n))
        known_[size_t(n.out[0].buffer)] = {n.call.out[0].dtype, rounded(n)};
    }
    remove_nodes(graph_, dead_);
    return std::move(report_);
  }

 private:
  struct Known {
    DType type;
    double value;
  };

  static bool all_floats(const Node& n) {
    bool all = true;
    n.for_each_access([&](const Operand&, const TensorRef& t, bool, bool) { all = all && is_float(t.dtype); });
    return all;
  }
  bool is_whole_buffer(const Operand& o, const TensorRef& t) const {
    return o.offset == 0 && is_contiguous(t) && numel(t) * size_of(t.dtype) == graph_.buffers[size_t(o.buffer)].bytes;
  }
  bool fills_a_buffer(const Node& n) const {
    return !graph_.buffers[size_t(n.out[0].buffer)].external && is_float(n.call.out[0].dtype) &&
           is_whole_buffer(n.out[0], n.call.out[0]);
  }
  // As it lies in memory.
  static double rounded(const Node& fill) {
    TensorRef wide;
    wide.dtype = DType::f64;
    KernelCall copy = fill.call;
    copy.variant = int(F::copy), copy.in = &wide, copy.n_in = 1;
    return evaluate(copy, &fill.call.attrs.as<FillAttrs>().value);
  }
  std::optional<double> constant(const Node& n, int input) const {
    const std::optional<Known>& k = known_[size_t(n.in[input].buffer)];
    return k && k->type == n.call.in[input].dtype ? std::optional(k->value) : std::nullopt;
  }

  void simplify(int at, Node& n) {
    double numbers[max_inputs];
    int constants = 0, which = 0;
    for (int i = 0; i < n.call.n_in; ++i)
      if (std::optional<double> c = constant(n, i)) numbers[i] = *c, which = i, ++constants;
    if (constants == 0) return;
    if (constants == n.call.n_in) {
      if (n.call.accumulate || !has_same_bits(graph_, n)) return;
      double value = evaluate(n.call, numbers);
      report_.lines.push_back(fmt::format("{} is {}", n.range->path(), value));
      n.op = &ops::fill, n.call.variant = ops::fill.variant, n.call.attrs = Attrs::of(FillAttrs{value});
      n.clear_inputs(), n.add_input(n.out[0], n.call.out[0]);
      n.cost = {};
      n.bytes = double(numel(n.call.out[0]) * size_of(n.call.out[0].dtype));
      return;
    }
    if (n.call.n_in != 2) return;
    const Operand x = n.in[1 - which];
    const TensorRef t = n.call.in[1 - which], out = n.call.out[0];
    // The constant's type and shape must not matter.
    auto is_double = [](const TensorRef& r) { return r.dtype == DType::f64; };
    if (numel(t) != numel(out) || (is_double(n.call.in[which]) && !is_double(t) && !is_double(out))) return;
    std::optional<AffineAttrs> affine = as_affine(F(n.call.variant), numbers[which], which == 0);
    if (!affine) return;
    if (changes_nothing(*affine) && forward(at, n, {x, t})) {
      report_.lines.push_back(fmt::format("{} changes nothing", n.range->path()));
      dead_[size_t(at)] = true;
      return;
    }
    report_.lines.push_back(fmt::format("{} knows its constant, {}", n.range->path(), numbers[which]));
    n.bytes -= double(numel(n.call.in[which]) * size_of(n.call.in[which].dtype));
    n.op = &ops::affine, n.call.variant = ops::affine.variant, n.call.attrs = Attrs::of(*affine);
    n.clear_inputs(), n.add_input(x, t);
  }

  // Lets those who read the call's result read x, if it is the same to them.
  bool forward(int at, const Node& n, const Placed& x) {
    const Operand& out = n.out[0];
    const Buffer& b = graph_.buffers[size_t(out.buffer)];
    if (b.external || b.output || n.call.accumulate || !is_whole_buffer(out, n.call.out[0]) || !is_contiguous(x.ref) ||
        x.ref.dtype != n.call.out[0].dtype || x.at.offset % 16 != 0)
      return false;
    int end = int(graph_.nodes.size());
    if (is_touched(graph_, {out, n.call.out[0]}, 0, at) || is_written(graph_, {out, n.call.out[0]}, at + 1, end) ||
        is_written(graph_, x, at + 1, end))
      return false;
    for (int i = at + 1; i < end; ++i)
      for (Operand& o : graph_.nodes[size_t(i)].in)
        if (o.buffer == out.buffer) o = {x.at.buffer, x.at.offset + o.offset};
    return true;
  }

  Graph& graph_;
  std::vector<std::optional<Known>> known_;
  std::vector<bool> dead_;
  Report report_;
};

}  // namespace

Report passes::constants(Graph& graph, const PassOptions&) { return Folding(graph).run(); }

}  // namespace sinter::compile
