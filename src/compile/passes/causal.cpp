// Naive causal attention computes every score and then masks half of them. Here its GEMMs and softmaxes are cut into
// strips of rows, each of which works only on the columns that its last row sees. Where the device has kernels for it
// (CUDA) forward becomes one call, which stores the probabilities but no scores, and dp, ds and dq another, which
// stores no dp. It stays naive: memory is quadratic in the number of positions.
//
// Note [Strips of columns]: dk and dv are sums over rows. A strip of rows would have to be added to them, and 16-bit
// sums would be rounded time and again. They are cut by columns of p instead (rows of dk and dv): those that come into
// sight with strip i are seen by the rows from strip i on, so that each part is one GEMM. Where several query heads
// share a key head the sum also runs over heads, which no such part could express: then the masked rest is filled with
// zeros, and dk and dv are whole GEMMs.
#include <algorithm>
#include <fmt/format.h>

#include "backend/choices.h"
#include "backend/matmul_problem.h"
#include "compile/passes.h"
#include "compile/passes/attention_pattern.h"
#include "ops/attention.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

constexpr int64_t granule = 64;
int64_t rounded_up(int64_t n) { return (n + granule - 1) / granule * granule; }

struct Strip {
  int64_t begin, rows;  // queries
  int64_t columns;      // keys that any of them sees, and some more
  int chain;            // long strips and short ones are paired, so that chains take about as long as each other
};

// Of a causal mask.
std::vector<Strip> strips_of(const choices::CausalStrips& limits, const SpelledAttention& a) {
  std::vector<Strip> all;
  int64_t count = std::clamp<int64_t>(a.queries / limits.least_rows, 1, limits.most);
  int64_t rows = rounded_up((a.queries + count - 1) / count);
  for (int64_t begin = 0; begin < a.queries; begin += rows) {
    int64_t n = std::min(rows, a.queries - begin);
    int64_t seen = rounded_up(std::max<int64_t>(1, begin + n + a.mask.causal_offset));
    all.push_back({begin, n, std::min(seen, a.keys), 0});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    size_t lap = i / strip_lanes, at = i % strip_lanes;
    all[i].chain = 1 + int(lap % 2 ? strip_lanes - 1 - at : at);
  }
  return all;
}

// Every (…, heads, rows, columns) tensor as (…, kv_heads, query heads of each, rows, columns); what
// these share has stride 0 there.
Placed grouped(const Placed& p, const SpelledAttention& a, bool shared) {
  int64_t group = a.heads / a.kv_heads;
  if (group == 1) return p;
  Placed g = p;
  g.ref.rank = 5;
  for (int d = 4; d > 2; --d) g.ref.dims[d] = p.ref.dims[d - 1], g.ref.strides[d] = p.ref.strides[d - 1];
  g.ref.dims[1] = a.kv_heads, g.ref.dims[2] = group;
  g.ref.strides[1] = shared ? p.ref.strides[1] : group * p.ref.strides[1];
  g.ref.strides[2] = shared ? 0 : p.ref.strides[1];
  return g;
}

class Cut {
 public:
  Cut(Graph& graph, const SpelledAttention& a)
      : graph_(graph),
        a_(a),
        limits_(choices::causal_strips(graph.target.type, a.q.ref.dtype)),
        strips_(strips_of(limits_, a)) {}

  // Empty if it is not worth it or cannot be done.
  std::string into(Replacement& with) {
    double area = 0;
    for (const Strip& s : strips_) area += double(s.rows) * double(s.columns);
    share_ = area / (double(a_.queries) * double(a_.keys));
    bool cut = a_.mask.causal && a_.queries >= limits_.least_queries && share_ <= limits_.most_work;
    if (!cut) strips_ = {{0, a_.queries, a_.keys, 1}};
    bool ordered =
        !a_.has_backward() || (strips_.back().columns == a_.keys && (a_.dq < 0 || a_.dk < 0 || a_.dq < a_.dk));
    joined_ = has_joined_kernels();
    if (!a_.plain || !ordered || !(cut || joined_)) return "";
    bool several = a_.heads != a_.kv_heads;
    bool whole = several && (a_.dv >= 0 || a_.dk >= 0);
    p_ = matrix(a_.softmax, MemoryCategory::activation);  // in 16 bits rows begin at multiples of 128 bytes
    if (joined_) joined_forward(whole);
    else
      for (const Strip& s : strips_) forward(s, whole);
    if (a_.has_backward()) {
      bool in_place = a_.dv < 0 || a_.dv < std::min(a_.dq < 0 ? a_.dk : a_.dq, a_.dk < 0 ? a_.dq : a_.dk);
      // Where there is room dv, which reads p, runs beside ds.
      if (joined_ && choices::leaves_room(graph_.buffers[size_t(p_.at.buffer)].bytes)) in_place = false;
      ds_ = in_place ? p_ : matrix(a_.softmax_backward, MemoryCategory::temporary);
      if (a_.dv >= 0) whole ? whole_sum(a_.dv, p_, a_.grad_o, a_.grad_v) : sums(a_.dv, p_, a_.grad_o, a_.grad_v, 2);
      if (joined_) joined_backward(whole);
      else
        for (const Strip& s : strips_) backward(s, whole && !in_place);
      if (a_.dk >= 0) whole ? whole_sum(a_.dk, ds_, a_.q, a_.grad_k) : sums(a_.dk, ds_, a_.q, a_.grad_k, 1);
    }
    if (!possible_) return "";
    for (auto& [at, node] : nodes_) with.put(at, std::move(node));
    with.drop(a_.calls());
    std::string strips = cut ? fmt::format("{} strips, {:.0f} % of the scores", strips_.size(), 100 * share_) : "";
    return fmt::format("{}: {}{}{}", node(a_.softmax).range->path(), strips, cut && joined_ ? ", " : "",
                       joined_ ? "scores are never stored" : "");
  }

 private:
  const Node& node(int i) const { return graph_.nodes[size_t(i)]; }

  bool has_joined_kernels() const {
    if (graph_.target.type != DeviceType::cuda || !has_kernels(graph_, a_) || a_.mask.scale <= 0) return false;
    if (node(a_.softmax).call.out[0].dtype != a_.q.ref.dtype || node(a_.values).call.accumulate) return false;
    const TensorRef& dq = a_.grad_q.ref;
    if (a_.has_backward() && (a_.dq < 0 || dq.dtype != a_.q.ref.dtype || node(a_.dq).call.accumulate ||
                              (dq.strides[3] != 1 && dq.dims[3] > 1)))
      return false;
    if (!is_16bit(a_.q.ref.dtype)) return true;
    return fits_hopper(graph_, {a_.q, a_.k, a_.v, a_.o}) &&
           (!a_.has_backward() || fits_hopper(graph_, {a_.grad_o, a_.grad_q}));
  }

  Placed matrix(int like, MemoryCategory category) {
    return new_tensor(graph_, {a_.batch, a_.heads, a_.queries, a_.keys}, node(like).call.out[0].dtype, category,
                      node(like).range, rounded_up(a_.keys));
  }
  Placed small_matrix(const Strip& s, int like) {
    return new_tensor(graph_, {a_.batch, a_.heads, s.rows, s.columns}, node(like).call.out[0].dtype,
                      MemoryCategory::temporary, node(like).range, rounded_up(s.columns));
  }
  static Placed seen(const Placed& p, const Strip& s) { return p.part(2, s.begin, s.rows).part(3, 0, s.columns); }

  void put(int at, int like, Node n, int chain, double share, double executed) {
    const Cost& all = node(like).cost;
    n.cost = {all.matmul_flops * share, all.other_flops * share, all.matmul_flops > 0 ? executed : -1};
    n.chain = chain;
    nodes_.emplace_back(at, std::move(n));
  }
  void product(int at, int like, const Placed& x, bool tx, const Placed& y, bool ty, const Placed& to, int chain,
               double share) {
    const Node& n = node(like);
    Node part = new_call(graph_, ops::matmul, n.range, Attrs::of(MatmulAttrs{tx, ty}), {x, y}, {to}, n.call.math,
                         n.call.accumulate);
    if (graph_.target.type == DeviceType::cuda) {  // each chain has its own
      part.call.workspace_bytes = std::min(part.call.workspace_bytes, choices::most_scratch_of_chain);
      graph_.buffers[size_t(part.workspace.buffer)].bytes = part.call.workspace_bytes;
    }
    MatmulProblem p;
    possible_ = possible_ && matmul_operand_ok(x.ref, false) && matmul_operand_ok(y.ref, false) &&
                matmul_operand_ok(to.ref, false) && matmul_problem(part.call, p) && !p.c.transposed;
    put(at, like, std::move(part), chain, share, 2.0 * double(p.m * p.n * p.k * p.inner * p.outer));
  }
  double rows_share(const Strip& s) const { return double(s.rows) / double(a_.queries); }

  // A call that stands for several. `products`: how often the kernel multiplies. What whole sums
  // read is zero beyond what is seen.
  void joined(const OpDef& op, int at, std::initializer_list<int> calls, std::initializer_list<Placed> in,
              std::initializer_list<Placed> out, double products, bool whole) {
    AttentionWeightsAttrs attrs{a_.mask.scale, a_.mask.causal, a_.mask.causal_offset};
    if (!whole && strips_.size() > 1) attrs.strip = strips_[0].rows;
    const Node& first = node(calls.begin()[0]);
    std::vector<const RangeNode*> ranges;
    for (int call : calls) ranges.push_back(node(call).range);
    Node n = new_call(graph_, op, range_above(ranges, op.name), Attrs::of(attrs), in, out, first.call.math);
    AttentionAttrs mask;
    mask.causal = attrs.causal, mask.causal_offset = attrs.causal_offset;
    n.cost.executed_flops = attention_cost(a_.q.ref, a_.k.ref, mask, products).executed();
    for (int call : calls) {
      n.cost.matmul_flops += node(call).cost.matmul_flops;
      n.cost.other_flops += node(call).cost.other_flops;
    }
    n.chain = 1;
    nodes_.emplace_back(at, std::move(n));
  }
  void joined_forward(bool whole) {
    double products = is_16bit(a_.q.ref.dtype) ? 3 : 2;  // 16-bit scores are computed twice
    joined(ops::attention_weights, a_.values, {a_.scores, a_.softmax, a_.values}, {a_.q, a_.k, a_.v}, {p_, a_.o},
           products, whole);
  }
  void joined_backward(bool whole) {
    joined(ops::attention_weights_backward, a_.dq, {a_.dp, a_.softmax_backward, a_.dq},
           {a_.grad_o, a_.v, a_.o, p_, a_.k}, {ds_, a_.grad_q}, 2, whole);
  }

  void softmax(int at, int like, std::initializer_list<Placed> in, const Placed& out, const Strip& s) {
    SoftmaxAttrs attrs = node(like).call.attrs.as<SoftmaxAttrs>();
    attrs.causal_offset += s.begin;
    put(at, like, new_call(graph_, *node(like).op, node(like).range, Attrs::of(attrs), in, {out}), s.chain,
        rows_share(s), 0);
  }
  // What a strip does not see.
  void clear(int at, int like, const Placed& all, const Strip& s) {
    if (s.columns == a_.keys) return;
    Placed rest = all.part(2, s.begin, s.rows).part(3, s.columns, a_.keys - s.columns);
    put(at, like, new_call(graph_, ops::fill, node(like).range, Attrs::of(FillAttrs{0}), {}, {rest}), s.chain, 0, 0);
  }

  void forward(const Strip& s, bool whole) {
    Placed p = seen(p_, s), q = a_.q.part(2, s.begin, s.rows), k = a_.k.part(2, 0, s.columns);
    Placed scores = small_matrix(s, a_.scores);
    product(a_.values, a_.scores, grouped(q, a_, false), false, grouped(k, a_, true), true, grouped(scores, a_, false),
            s.chain, rows_share(s));
    softmax(a_.values, a_.softmax, {scores}, p, s);
    if (whole) clear(a_.values, a_.softmax, p_, s);
    product(a_.values, a_.values, grouped(p, a_, false), false, grouped(a_.v.part(2, 0, s.columns), a_, true), false,
            grouped(a_.o.part(2, s.begin, s.rows), a_, false), s.chain, rows_share(s));
  }

  void backward(const Strip& s, bool clears) {
    int at = a_.dq >= 0 ? a_.dq : a_.dk >= 0 ? a_.dk : a_.softmax_backward;
    Placed ds = seen(ds_, s), grad_o = a_.grad_o.part(2, s.begin, s.rows), v = a_.v.part(2, 0, s.columns);
    Placed dp = small_matrix(s, a_.dp);
    product(at, a_.dp, grouped(grad_o, a_, false), false, grouped(v, a_, true), true, grouped(dp, a_, false), s.chain,
            rows_share(s));
    softmax(at, a_.softmax_backward, {seen(p_, s), dp}, ds, s);
    if (clears) clear(at, a_.softmax_backward, ds_, s);
    if (a_.dq >= 0)
      product(at, a_.dq, grouped(ds, a_, false), false, grouped(a_.k.part(2, 0, s.columns), a_, true), false,
              grouped(a_.grad_q.part(2, s.begin, s.rows), a_, false), s.chain, rows_share(s));
  }

  // Note [Strips of columns]. `beside`: how many chains from that of its rows.
  void sums(int at, const Placed& weights, const Placed& rows, const Placed& to, int beside) {
    int64_t column = 0;
    for (const Strip& s : strips_) {
      int64_t n = s.columns - column, below = a_.queries - s.begin;
      if (n > 0)
        product(at, at, weights.part(2, s.begin, below).part(3, column, n), true, rows.part(2, s.begin, below), false,
                to.part(2, column, n), 1 + (s.chain - 1 + (joined_ ? beside : 0)) % strip_lanes,
                double(n) / double(a_.keys));
      column = s.columns;
    }
  }
  void whole_sum(int at, const Placed& weights, const Placed& rows, const Placed& to) {
    product(at, at, one_matrix(weights), true, one_matrix(rows), false, to, 0, 1);
  }
  // The heads of a group as rows of one matrix.
  Placed one_matrix(const Placed& p) {
    Placed j = p;
    int64_t group = a_.heads / a_.kv_heads;
    possible_ = possible_ && p.ref.strides[1] == a_.queries * p.ref.strides[2];
    j.ref.dims[1] = a_.kv_heads, j.ref.dims[2] = group * a_.queries;
    j.ref.strides[1] = group * p.ref.strides[1];
    return j;
  }

  Graph& graph_;
  const SpelledAttention& a_;
  choices::CausalStrips limits_;
  std::vector<Strip> strips_;
  std::vector<std::pair<int, Node>> nodes_;  // where the call of this number stands
  Placed p_, ds_;
  double share_ = 1;
  bool joined_ = false;  // forward is one call, and so are dp, ds and dq
  bool possible_ = true;
};

}  // namespace

Report passes::causal(Graph& graph, const PassOptions&) {
  Report report;
  Replacement with(graph);
  for (const SpelledAttention& a : find_attention(graph))
    if (std::string done = Cut(graph, a).into(with); !done.empty()) report.lines.push_back(done);
  with.apply();
  return report;
}

}  // namespace sinter::compile
