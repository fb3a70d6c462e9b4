// The projection's rows hold all heads already: split_heads only rotates queries and keys and gives each head memory of
// its own. Attention reads rows that are far apart as well as others, so heads can stay where the GEMM left them:
// what is rotated is rotated in place, values are not touched, and nothing is copied. Backward, attention leaves its
// gradients in the rows that the GEMM's gradient is computed from.
#include <fmt/format.h>

#include "compile/passes.h"
#include "compile/rewrite.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

// Heads [first, first + of.dims[1]) of rows.
Placed heads_in(const Placed& rows, int64_t first, const TensorRef& of) {
  int64_t D = of.dims[3], row = rows.ref.strides[1];
  Placed p = rows;
  p.at.offset += first * D * size_of(of.dtype);
  p.ref = of;
  int64_t strides[] = {rows.ref.strides[0], D, row, 1};
  std::copy(std::begin(strides), std::end(strides), p.ref.strides);
  return p;
}

class Heads {
 public:
  Heads(Graph& graph, int at) : graph_(graph), at_(at), splits_(graph.nodes[size_t(at)].op == &ops::split_heads) {}

  bool move() {
    Node& n = graph_.nodes[size_t(at_)];
    rows_ = splits_ ? input(n, 0) : output(n);
    bool plain = n.call.accumulate == 0 && is_own(rows_) && rows_.ref.rank == 3 && rows_.ref.strides[2] == 1;
    if (!plain || !in_vectors(n) ||
        (splits_ ? is_touched(graph_, rows_, at_ + 1, end()) : is_touched(graph_, rows_, 0, at_)))
      return false;
    for (int i = 0; i < 3; ++i)
      if (!can_move(splits_ ? output(n, i) : input(n, i))) return false;
    int64_t first = 0;
    for (int i = 0; i < 3; ++i) {
      Placed from = splits_ ? output(n, i) : input(n, i), to = heads_in(rows_, first, from.ref);
      first += from.ref.dims[1];
      replace(from.at.buffer, to);
    }
    const TensorRef& values = splits_ ? n.call.out[2] : n.call.in[2];  // neither read nor written any more
    n.bytes -= 2 * double(numel(values) * size_of(values.dtype));
    return true;
  }
  const RangeNode* range() const { return graph_.nodes[size_t(at_)].range; }

 private:
  int end() const { return int(graph_.nodes.size()); }
  bool is_own(const Placed& p) const {
    const Buffer& b = graph_.buffers[size_t(p.at.buffer)];
    return b.is_planned() && !b.output;
  }
  // In place a thread must have both numbers of a pair that is rotated: kernels move whole vectors
  // of 16 bytes, or single numbers.
  bool in_vectors(const Node& n) const {
    int64_t heads = n.call.attrs.as<HeadsAttrs>().heads + 2 * n.call.attrs.as<HeadsAttrs>().kv_heads;
    int64_t size = size_of(rows_.ref.dtype), D = rows_.ref.dims[2] / heads, tables = splits_ ? 1 : 3;
    auto whole = [](int64_t bytes) { return bytes % 16 == 0; };
    return whole(rows_.at.offset) && whole(D * size) && whole(rows_.ref.strides[0] * size) &&
           whole(rows_.ref.strides[1] * size) && whole(n.in[tables].offset) && whole(n.in[tables + 1].offset);
  }
  // Only this call and attention know it, and attention takes it as a whole.
  bool can_move(const Placed& heads) const {
    if (!is_own(heads) || heads.at.buffer == rows_.at.buffer) return false;
    bool fits = true;
    for (int i = 0; i < end(); ++i) {
      const Node& n = graph_.nodes[size_t(i)];
      bool known = i == at_ || n.op == &ops::attention || n.op == &ops::attention_backward;
      n.for_each_access([&](const Operand& o, const TensorRef& t, bool reads, bool writes) {
        if (o.buffer != heads.at.buffer) return;
        bool expected = splits_ ? (i == at_ ? writes : reads && !writes && i > at_)
                                : (i == at_ ? reads : writes && !reads && i < at_);
        fits = fits && known && expected && same_place({o, t}, heads);
      });
    }
    return fits;
  }
  void replace(int buffer, const Placed& to) {
    for (Node& n : graph_.nodes) {
      for (int i = 0; i < n.call.n_in; ++i)
        if (n.in[i].buffer == buffer) n.in[i] = to.at, n.call.input(i) = to.ref;
      for (int j = 0; j < n.call.n_out; ++j)
        if (n.out[j].buffer == buffer) n.out[j] = to.at, n.call.output(j) = to.ref;
    }
  }

  Graph& graph_;
  int at_;
  bool splits_;
  Placed rows_;
};

}  // namespace

Report passes::heads(Graph& graph, const PassOptions&) {
  Report report;
  if (graph.target.type != DeviceType::cuda)
    return report;  // the CPU reads heads faster where each has memory of its own
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const OpDef* op = graph.nodes[i].op;
    if (op != &ops::split_heads && op != &ops::split_heads_backward) continue;
    double before = graph.nodes[i].bytes;
    Heads heads(graph, int(i));
    if (heads.move())
      report.lines.push_back(
          fmt::format("{} in place: {:.0f} bytes saved", heads.range()->path(), before - graph.nodes[i].bytes));
  }
  return report;
}

}  // namespace sinter::compile
