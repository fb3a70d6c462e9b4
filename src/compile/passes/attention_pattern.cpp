#include "compile/passes/attention_pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/workspace.h"
#include "ops/attention.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// A tensor as rows with one stride between them.
struct RowLayout {
  int64_t rows = 1, columns = 0, stride = 0;
  bool operator==(const RowLayout&) const = default;
};
std::optional<RowLayout> rows_of(const TensorRef& t) {
  if (t.rank < 1 || (t.strides[t.rank - 1] != 1 && t.dims[t.rank - 1] != 1)) return {};
  RowLayout r{1, t.dims[t.rank - 1], t.dims[t.rank - 1]};
  int64_t expected = -1;
  for (int d = t.rank - 2; d >= 0; --d) {
    if (t.dims[d] == 1) continue;
    if (expected < 0) r.stride = t.strides[d];
    else if (t.strides[d] != expected) return {};
    expected = t.strides[d] * t.dims[d];
    r.rows *= t.dims[d];
  }
  return r;
}
// Whether what is read is all that was written, row by row, whatever the leading dimensions.
bool same_rows(const Placed& written, const Placed& read) {
  auto a = rows_of(written.ref), b = rows_of(read.ref);
  return written.at.offset == read.at.offset && written.ref.dtype == read.ref.dtype && a && b && *a == *b;
}

// A matrix operand, transposed or not, as (batch, heads, rows, columns). Rank 0: it has too many dimensions.
Placed four_dimensional(const Placed& m, bool transposed) {
  Placed p = m;
  int r = m.ref.rank;
  p.ref.rank = r >= 2 && r <= 4 ? 4 : 0;
  for (int d = 0; d < 4 && p.ref.rank; ++d) {
    int from = d - (4 - r);
    p.ref.dims[d] = from < 0 ? 1 : m.ref.dims[from];
    p.ref.strides[d] = from < 0 ? 0 : m.ref.strides[from];
  }
  if (transposed) std::swap(p.ref.dims[2], p.ref.dims[3]), std::swap(p.ref.strides[2], p.ref.strides[3]);
  return p;
}

// Rows of several query heads, one after the other, as heads.
std::optional<Placed> as_heads(const Placed& m, int64_t queries) {
  Placed p = m;
  int64_t group = m.ref.dims[2] / queries;
  p.ref.dims[1] *= group;
  p.ref.dims[2] = queries;
  if (group == 1) return p;
  if (m.ref.dims[1] > 1 && m.ref.strides[1] != m.ref.dims[2] * m.ref.strides[2]) return {};
  p.ref.strides[1] = queries * m.ref.strides[2];
  return p;
}

const MatmulAttrs* matmul_attrs(const Node& n) {
  if (n.op->kind != OpKind::product) return nullptr;
  const auto& a = n.call.attrs.as<MatmulAttrs>();
  return a.fold_a || a.fold_b ? nullptr : &a;
}

// What a copy, a cast or a scaling multiplies by.
std::optional<double> factor_of(const Node& n) {
  if (n.op->kind != OpKind::pointwise || n.call.n_in != 1 || n.call.n_out != 1 || n.call.accumulate) return {};
  if (!is_float(n.call.in[0].dtype) || !is_float(n.call.out[0].dtype)) return {};
  if (n.call.variant == int(PointwiseFn::copy)) return 1;
  if (n.call.variant != int(PointwiseFn::affine) || n.call.attrs.as<AffineAttrs>().beta != 0) return {};
  return n.call.attrs.as<AffineAttrs>().alpha;
}
bool only_moves(const Node& n) {
  return n.call.variant == int(PointwiseFn::copy) && n.call.in[0].dtype == n.call.out[0].dtype;
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), reads_(graph.buffers.size()), writes_(graph.buffers.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& n = graph.nodes[i];
      for (int k = 0; k < n.call.n_in; ++k) {
        reads_[size_t(n.in[k].buffer)].push_back({int(i), k});
        if (n.op->mutates >> k & 1) writes_[size_t(n.in[k].buffer)].push_back(int(i));
      }
      for (int j = 0; j < n.call.n_out; ++j) {
        writes_[size_t(n.out[j].buffer)].push_back(int(i));
        if (n.call.accumulates(j)) reads_[size_t(n.out[j].buffer)].push_back({int(i), -1});
      }
    }
  }

  std::optional<SpelledAttention> at(int softmax) {
    a_ = {};
    a_.softmax = softmax;
    const Node& s = node(softmax);
    if (s.call.n_in != 1 || s.call.in[0].rank < 2) return {};
    a_.mask = s.call.attrs.as<SoftmaxAttrs>();
    double factor = 1;
    a_.scores = producer(input(s, 0), softmax, factor);
    if (a_.scores < 0 || !find_readers_of_p() || !find_shapes()) return {};
    a_.mask.scale *= factor;
    if (a_.has_backward() ? !find_backward(factor) : a_.dv >= 0) return {};
    if (!holds()) return {};
    return a_;
  }

 private:
  struct Read {
    int call, input;
  };
  const Node& node(int i) const { return graph_.nodes[size_t(i)]; }
  bool is_inner(int buffer) const {
    const Buffer& b = graph_.buffers[size_t(buffer)];
    return !b.external && !b.output && writes_[size_t(buffer)].size() == 1;
  }

  // The product behind a tensor that one call alone reads; -1: something else is there.
  int producer(Placed tensor, int reader, double& factor) {
    for (;;) {
      size_t b = size_t(tensor.at.buffer);
      if (!is_inner(int(b)) || reads_[b].size() != 1 || reads_[b][0].call != reader) return -1;
      int writer = writes_[b][0];
      const Node& n = node(writer);
      if (!same_rows(output(n), tensor)) return -1;
      if (matmul_attrs(n)) return n.call.accumulate ? -1 : writer;
      std::optional<double> f = factor_of(n);
      if (!f) return -1;
      factor *= *f;
      pass(writer, only_moves(n));
      tensor = input(n, 0);
      reader = writer;
    }
  }

  // Who reads a tensor in the end, and what it has been multiplied by on the way; false: not as it was written.
  struct End {
    Read read;
    double factor;
  };
  bool ends(const Placed& written, double factor, std::vector<End>& all) {
    if (!is_inner(written.at.buffer)) return false;
    for (const Read& r : reads_[size_t(written.at.buffer)]) {
      if (r.input < 0) return false;
      const Node& n = node(r.call);
      if (!same_rows(written, input(n, r.input))) return false;
      std::optional<double> f = factor_of(n);
      if (!f) all.push_back({r, factor});
      else if (pass(r.call, false), !ends(output(n), factor * *f, all)) return false;
    }
    return true;
  }
  void pass(int call, bool plain) {
    a_.between.push_back(call);
    a_.plain = a_.plain && plain;
  }
  static bool claim(int& role, int call) { return role < 0 ? (role = call, true) : false; }

  bool find_readers_of_p() {
    std::vector<End> all;
    if (!ends(output(node(a_.softmax)), 1, all)) return false;
    for (const End& e : all) {
      const Node& n = node(e.read.call);
      const MatmulAttrs* m = matmul_attrs(n);
      bool taken = false;
      if (e.factor == 1 && e.read.input == 0) {
        if (m) taken = claim(m->transpose_a ? a_.dv : a_.values, e.read.call);
        else if (n.op == &ops::softmax_backward) taken = claim(a_.softmax_backward, e.read.call);
      }
      if (!taken) return false;
    }
    return a_.values >= 0;
  }

  bool find_shapes() {
    const Node &scores = node(a_.scores), &values = node(a_.values), &softmax = node(a_.softmax);
    const MatmulAttrs &s = *matmul_attrs(scores), &v = *matmul_attrs(values);
    if (s.transpose_a || values.call.accumulate) return false;
    Placed q = four_dimensional(input(scores, 0), false), o = four_dimensional(output(values), false);
    a_.k = four_dimensional(input(scores, 1), !s.transpose_b);
    a_.v = four_dimensional(input(values, 1), v.transpose_b);
    if (!q.ref.rank || !o.ref.rank || !a_.k.ref.rank || !a_.v.ref.rank) return false;
    const TensorRef& m = softmax.call.in[0];
    a_.queries = m.dims[m.rank - 2];
    a_.keys = m.dims[m.rank - 1];
    a_.batch = q.ref.dims[0];
    a_.kv_heads = q.ref.dims[1];
    a_.head_dim = q.ref.dims[3];
    if (a_.queries < 1 || a_.keys < 1 || a_.head_dim < 1 || q.ref.dims[2] % a_.queries) return false;
    a_.heads = a_.kv_heads * (q.ref.dims[2] / a_.queries);
    bool fits = numel(m) == a_.batch * a_.heads * a_.queries * a_.keys && o.ref.dims[2] == q.ref.dims[2];
    return fits && place(q, a_.q) && place(o, a_.o);
  }
  bool place(const Placed& rows, Placed& heads) const {
    std::optional<Placed> p = as_heads(rows, a_.queries);
    if (p) heads = *p;
    return p.has_value();
  }

  bool find_backward(double scaling) {
    const Node& b = node(a_.softmax_backward);
    const SoftmaxAttrs &mine = node(a_.softmax).call.attrs.as<SoftmaxAttrs>(), &its = b.call.attrs.as<SoftmaxAttrs>();
    if (b.call.accumulate || mine.scale != its.scale || mine.causal != its.causal ||
        mine.causal_offset != its.causal_offset)
      return false;
    double factor = 1;
    a_.dp = producer(input(b, 1), a_.softmax_backward, factor);
    std::vector<End> all;
    if (a_.dp < 0 || factor != 1 || !ends(output(b), 1, all)) return false;
    bool transposed = false;  // dk is computed as its transpose
    for (const End& e : all) {
      const MatmulAttrs* m = matmul_attrs(node(e.read.call));
      if (!m || std::abs(e.factor - scaling) > 1e-12 * std::abs(scaling)) return false;
      bool first = e.read.input == 0;
      if (!first && (!m->transpose_a || m->transpose_b)) return false;
      if (!claim(first && !m->transpose_a ? a_.dq : a_.dk, e.read.call)) return false;
      if (!first) transposed = true;
    }

    const Node& dp = node(a_.dp);
    const MatmulAttrs& m = *matmul_attrs(dp);
    Placed grad_o = four_dimensional(input(dp, 0), false);
    if (m.transpose_a || !place(grad_o, a_.grad_o)) return false;
    if (!same_place(four_dimensional(input(dp, 1), !m.transpose_b), a_.v)) return false;
    Placed q = four_dimensional(input(node(a_.scores), 0), false);
    if (a_.dv >= 0) {
      const Node& n = node(a_.dv);
      if (matmul_attrs(n)->transpose_b || !same_place(four_dimensional(input(n, 1), false), grad_o)) return false;
      a_.grad_v = four_dimensional(output(n), false);
    }
    if (a_.dq >= 0) {
      const Node& n = node(a_.dq);
      if (!same_place(four_dimensional(input(n, 1), matmul_attrs(n)->transpose_b), a_.k)) return false;
      if (!place(four_dimensional(output(n), false), a_.grad_q)) return false;
    }
    if (a_.dk >= 0) {
      const Node& n = node(a_.dk);
      if (!transposed && matmul_attrs(n)->transpose_b) return false;
      if (!same_place(four_dimensional(input(n, transposed ? 0 : 1), false), q)) return false;
      a_.grad_k = four_dimensional(output(n), transposed);
    }
    return true;
  }

  // What the pattern reads stays as it is while its calls run.
  bool holds() const {
    std::vector<int> calls = a_.calls();
    std::sort(calls.begin(), calls.end());
    auto backward = std::upper_bound(calls.begin(), calls.end(), a_.values);
    if (!graph_.in_one_segment(calls.front(), a_.values)) return false;
    if (backward != calls.end() && !graph_.in_one_segment(*backward, calls.back())) return false;
    int last = calls.back();
    for (const Placed* p : {&a_.q, &a_.k})
      if (is_written(graph_, *p, a_.scores, last)) return false;
    if (is_written(graph_, a_.v, a_.values, last)) return false;
    if (!a_.has_backward()) return true;
    int first = a_.dv < 0 ? a_.dp : std::min(a_.dv, a_.dp);
    return !is_written(graph_, a_.o, a_.values + 1, last) && !is_written(graph_, a_.grad_o, first, last);
  }

  const Graph& graph_;
  std::vector<std::vector<Read>> reads_;
  std::vector<std::vector<int>> writes_;
  SpelledAttention a_;
};

}  // namespace

std::vector<int> SpelledAttention::calls() const {
  std::vector<int> all = between;
  for (int call : {scores, softmax, values, dv, dp, softmax_backward, dq, dk})
    if (call >= 0) all.push_back(call);
  return all;
}

std::vector<SpelledAttention> find_attention(const Graph& graph) {
  Finder finder(graph);
  std::vector<SpelledAttention> all;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op == &ops::softmax)
      if (std::optional<SpelledAttention> a = finder.at(int(i))) all.push_back(std::move(*a));
  return all;
}

bool has_kernels(const Graph& graph, const SpelledAttention& a) {
  DType type = a.q.ref.dtype;
  if (a.k.ref.dtype != type || a.v.ref.dtype != type || a.o.ref.dtype != type || a.v.ref.dims[3] != a.head_dim)
    return false;
  if (type == DType::f64 && graph.target.type == DeviceType::cuda) return false;
  if (a.has_backward() && a.grad_o.ref.dtype != type) return false;
  auto contiguous_heads = [](const TensorRef& t) {
    return (t.strides[3] == 1 || t.dims[3] == 1) && (t.strides[2] >= t.dims[3] || t.dims[2] == 1);
  };
  for (const Placed* p : {&a.q, &a.k, &a.v, &a.o, &a.grad_o})
    if (p->ref.rank && !contiguous_heads(p->ref)) return false;
  return missing_attention(graph.target, a.head_dim).empty();
}

}  // namespace sinter::compile
