// GEMMs that share an operand, and whose weights were declared one after the other, become one (CUDA): q, k and v of
// one input, or gate and up, where a model has not declared them as a group. Nothing is copied: the weights lie where
// they lay, and what was several results is parts of one.
//
// Note [Joined products]: forward yᵢ = x·Wᵢᵀ, and in backward dWᵢ = dyᵢᵀ·x and dx = Σ dyᵢ·Wᵢ, look the same from here.
// All have one tensor in common (`shared`), have matrices that lie one below the other in memory already (`stacked`),
// and tensors that must come to lie side by side (`columns`). Those are put into one wider tensor if every call that
// reads or writes them takes rows that are further apart.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/matmul_problem.h"
#include "backend/workspace.h"
#include "compile/passes.h"
#include "compile/rewrite.h"

namespace sinter::compile {
namespace {

using workspace::last_dim;

enum class Form { forward, weight_grad, input_grad };

struct Product {
  int call;
  Form form;
  Placed shared, stacked, columns;
};

// Nothing if the call is no product of two matrices, or has other operands than those forms.
std::optional<Product> product_at(const Graph& graph, int call) {
  const Node& n = graph.nodes[size_t(call)];
  if (!n.op->is_product() || n.call.n_in != 2 || numel(n.call.in[0]) == 0 || numel(n.call.in[1]) == 0) return {};
  const auto& attrs = n.call.attrs.as<MatmulAttrs>();
  Placed a{n.in[0], n.call.in[0]}, b{n.in[1], n.call.in[1]}, c{n.out[0], n.call.out[0]};
  bool matrices = (attrs.fold_a || a.ref.rank == 2) && (attrs.fold_b || b.ref.rank == 2);
  if (!matrices || (attrs.transpose_a && attrs.transpose_b)) return {};
  Product p = attrs.transpose_a   ? Product{call, Form::weight_grad, b, c, a}
              : attrs.transpose_b ? Product{call, Form::forward, a, b, c}
                                  : Product{call, Form::input_grad, c, b, a};
  if (p.form == Form::forward && n.call.accumulate) return {};
  bool apart = p.shared.at.buffer != p.stacked.at.buffer && p.shared.at.buffer != p.columns.at.buffer &&
               p.stacked.at.buffer != p.columns.at.buffer;
  if (!apart || p.stacked.ref.rank != 2 || !is_contiguous(p.stacked.ref)) return {};
  return p;
}

bool are_alike(const Graph& graph, const Product& a, const Product& b) {
  const Node &x = graph.nodes[size_t(a.call)], &y = graph.nodes[size_t(b.call)];
  if (x.op != y.op || x.call.math != y.call.math ||
      std::memcmp(x.call.attrs.bytes, y.call.attrs.bytes, sizeof x.call.attrs.bytes) != 0)
    return false;
  // Of sums, only the one that begins may not add to what is there.
  bool adds = a.form == Form::input_grad ? y.call.accumulates(0) : x.call.accumulate == y.call.accumulate;
  return adds && same_place(a.shared, b.shared) && a.stacked.at.buffer == b.stacked.at.buffer &&
         a.stacked.ref.dtype == b.stacked.ref.dtype && a.stacked.ref.dims[1] == b.stacked.ref.dims[1];
}

// An operand of the buffer that holds `from`, a matrix of contiguous rows, where it lies when `from` is `to`, whose
// rows are further apart. False if it runs on from row to row.
bool relocate(Operand& o, TensorRef& t, const Placed& from, const Placed& to) {
  int64_t size = size_of(from.ref.dtype), width = last_dim(from.ref), row = to.ref.strides[to.ref.rank - 2];
  if (t.dtype != from.ref.dtype || o.offset % size) return false;
  int64_t first = o.offset / size, last_column = first % width;
  for (int d = 0; d < t.rank; ++d) {
    if (t.strides[d] % width == 0) t.strides[d] = t.strides[d] / width * row;
    else if (t.dims[d] != 1 && t.strides[d] > width) return false;
    else last_column += (t.dims[d] - 1) * t.strides[d];
  }
  o = {to.at.buffer, to.at.offset + (first / width * row + first % width) * size};
  return last_column < width;
}

// What a kernel may be asked to write: pointwise ones take any strides, GEMMs rows that
// are apart (backend/kernels.def).
bool takes_output(const Node& n, const TensorRef& t) {
  if (is_contiguous(t) || n.op->kind == OpKind::pointwise) return true;
  const auto& attrs = n.call.attrs.as<MatmulAttrs>();
  return n.op->is_product() && t.strides[t.rank - 1] == 1 && matmul_operand_ok(t, attrs.fold_a && !attrs.transpose_a);
}

// The call as it is when what it reads and writes of `from` is `to`. False if its kernel does not take that.
bool relocate(Node& n, const Placed& from, const Placed& to) {
  MatmulProblem before, after;
  if (n.op->is_product() && !matmul_problem(n.call, before)) return false;
  for (int i = 0; i < n.call.n_in; ++i) {
    if (n.in[i].buffer != from.at.buffer) continue;
    TensorRef& t = n.call.input(i);
    if (n.op->mutates >> i & 1 || !relocate(n.in[i], t, from, to)) return false;
    if (!is_contiguous(t) && !(n.op->accepts && n.op->accepts(t, i, n.call.attrs))) return false;
  }
  for (int j = 0; j < n.call.n_out; ++j) {
    if (n.out[j].buffer != from.at.buffer) continue;
    if (!relocate(n.out[j], n.call.output(j), from, to) || !takes_output(n, n.call.out[j])) return false;
  }
  return !n.op->is_product() || (n.call.n_in == 2 && matmul_problem(n.call, after) && after.outer == before.outer);
}

bool touches(const Node& n, int buffer) {
  bool found = false;
  n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool) { found |= o.buffer == buffer; });
  return found;
}

// Whether a tensor can become columns of a wider one: it is all that its buffer holds, parts of 16 bytes keep the
// GEMMs' fast kernels, and all who touch it take it so.
bool can_be_part(const Graph& graph, const Placed& p) {
  const Buffer& b = graph.buffers[size_t(p.at.buffer)];
  int64_t size = size_of(p.ref.dtype);
  if (b.external || b.output || p.at.offset != 0 || !is_contiguous(p.ref) || b.bytes != numel(p.ref) * size ||
      last_dim(p.ref) * size % 16 != 0)
    return false;
  Placed wider = p;
  wider.ref.strides[p.ref.rank - 2] = 2 * last_dim(p.ref);
  for (const Node& n : graph.nodes)
    if (Node moved = n; touches(n, p.at.buffer) && !relocate(moved, p, wider)) return false;
  return true;
}

bool is_right_of(const Placed& b, const Placed& a) {
  int64_t width = last_dim(a.ref) + last_dim(b.ref);
  for (int d = 0; d + 1 < a.ref.rank; ++d)
    if (a.ref.dims[d] != 1 && a.ref.strides[d] < width) return false;
  return same_place({a.at, Placed{b}.part(b.ref.rank - 1, 0, last_dim(a.ref)).ref}, a) && b.at.buffer == a.at.buffer &&
         b.at.offset == a.at.offset + last_dim(a.ref) * size_of(a.ref.dtype);
}

bool can_follow(const Graph& graph, const std::vector<Product>& run, const Product& next) {
  const Product& last = run.back();
  if (next.stacked.at.offset != span_of(last.stacked.ref, last.stacked.at.offset).end) return false;
  if (is_right_of(next.columns, last.columns)) return true;
  auto same_buffer = [&](const Product& p) { return p.columns.at.buffer == next.columns.at.buffer; };
  return std::none_of(run.begin(), run.end(), same_buffer) && can_be_part(graph, last.columns) &&
         can_be_part(graph, next.columns);
}

// All that can become one with a call, itself included, in the order of their weights. Only later
// ones: earlier ones have found it.
std::vector<Product> run_of(const Graph& graph, int call) {
  std::optional<Product> leader = product_at(graph, call);
  if (!leader) return {};
  std::vector<Product> alike{*leader}, run;
  for (int j = call + 1; j < int(graph.nodes.size()); ++j)
    if (std::optional<Product> p = product_at(graph, j); p && p->form == leader->form && are_alike(graph, *leader, *p))
      alike.push_back(*p);
  std::sort(alike.begin(), alike.end(),
            [](const Product& a, const Product& b) { return a.stacked.at.offset < b.stacked.at.offset; });
  auto is_leader = [&](const Product& p) { return p.call == call; };
  for (const Product& p : alike) {
    if (!run.empty() && !can_follow(graph, run, p)) {
      if (std::any_of(run.begin(), run.end(), is_leader)) break;
      run.clear();
    }
    run.push_back(p);
  }
  return std::any_of(run.begin(), run.end(), is_leader) ? run : std::vector<Product>{};
}

// Forward the first call does the work of all, later ones move up to it; backward the last one does.
// Whatever they pass must not mind.
bool can_meet(const Graph& graph, const std::vector<Product>& run, int first, int last) {
  for (int between = first + 1; between < last; ++between) {
    auto is_it = [&](const Product& p) { return p.call == between; };
    if (std::any_of(run.begin(), run.end(), is_it)) continue;
    for (const Product& p : run) {
      if (p.form == Form::forward ? p.call < between : p.call > between) continue;
      const Node& n = graph.nodes[size_t(p.call)];
      if (is_touched(graph, {n.out[0], n.call.out[0]}, between, between + 1)) return false;
      for (int i = 0; i < n.call.n_in; ++i)
        if (is_written(graph, {n.in[i], n.call.in[i]}, between, between + 1)) return false;
    }
  }
  return true;
}

// Side by side, if they are not yet.
Placed joined_columns(Graph& graph, const std::vector<Product>& run) {
  Placed all = run[0].columns;
  const int columns = all.ref.rank - 1;
  int64_t width = 0;
  for (const Product& p : run) width += last_dim(p.columns.ref);
  if (is_right_of(run[1].columns, run[0].columns)) {
    all.ref.dims[columns] = width;
    return all;
  }
  const Buffer& b = graph.buffers[size_t(all.at.buffer)];
  Dims dims(all.ref.dims, all.ref.rank);
  all = new_tensor(graph, dims.with_last(width), all.ref.dtype, b.category, b.range);
  int64_t at = 0;
  for (const Product& p : run) {
    Placed part = all.part(columns, at, last_dim(p.columns.ref));
    for (Node& n : graph.nodes)
      if (touches(n, p.columns.at.buffer)) relocate(n, p.columns, part);
    at += last_dim(p.columns.ref);
  }
  return all;
}

void make_one(Graph& graph, const std::vector<Product>& run, int first, int last, std::vector<bool>& dead,
              Report& report) {
  Form form = run[0].form;
  const Node before = graph.nodes[size_t(first)];
  std::vector<const RangeNode*> ranges;
  std::vector<std::string> names;
  Cost cost;
  double bytes = 0;
  Placed stacked = run[0].stacked, shared = run[0].shared;
  stacked.ref.dims[0] = 0, stacked.ref.strides[0] = stacked.ref.dims[1], stacked.ref.strides[1] = 1;
  for (const Product& p : run) {
    const Node& n = graph.nodes[size_t(p.call)];
    ranges.push_back(n.range);
    names.push_back(n.range->path());
    cost.matmul_flops += n.cost.matmul_flops;
    bytes += n.bytes;
    stacked.ref.dims[0] += p.stacked.ref.dims[0];
  }
  Placed columns = joined_columns(graph, run);
  const RangeNode* range = range_above(ranges, before.op->name);
  auto call = [&](const Placed& a, const Placed& b, const Placed& c) {
    return new_call(graph, *before.op, range, before.call.attrs, {a, b}, {c}, before.call.math, before.call.accumulate);
  };
  Node all = form == Form::forward       ? call(shared, stacked, columns)
             : form == Form::weight_grad ? call(columns, shared, stacked)
                                         : call(columns, stacked, shared);
  all.cost = cost;
  all.segment = graph.nodes[size_t(form == Form::forward ? last : first)].segment;
  report.lines.push_back(fmt::format("{} are one: {:.0f} bytes saved", fmt::join(names, ", "), bytes - all.bytes));
  for (const Product& p : run) {
    Node& gone = graph.nodes[size_t(p.call)];
    gone.clear_inputs(), gone.clear_outputs();  // touches nothing any more
    dead[size_t(p.call)] = true;
  }
  int at = form == Form::forward ? first : last;
  graph.nodes[size_t(at)] = std::move(all);
  dead[size_t(at)] = false;
}

}  // namespace

Report passes::join(Graph& graph, const PassOptions&) {
  Report report;
  if (graph.target.type != DeviceType::cuda) return report;  // the CPU promises eager's bits, and gains little
  std::vector<bool> dead(graph.nodes.size());
  for (int i = 0; i < int(graph.nodes.size()); ++i) {
    std::vector<Product> run = run_of(graph, i);
    auto earlier = [](const Product& a, const Product& b) { return a.call < b.call; };
    if (run.size() < 2) continue;
    auto [first, last] = std::minmax_element(run.begin(), run.end(), earlier);
    if (graph.in_one_segment(first->call, last->call) && can_meet(graph, run, first->call, last->call))
      make_one(graph, run, first->call, last->call, dead, report);
  }
  remove_nodes(graph, dead);
  return report;
}

}  // namespace sinter::compile
