// Pointwise fusion: calls that work element by element on tensors of the same size, and are connected, become one call. Each element is
// loaded once and stored once; what only passes between them never reaches memory, and stays in fp32 on its way. On the CPU so far.
//
// The fused call stands where the last of them stood: the others move down to it, past calls that touch nothing of theirs.
#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "backend/workspace.h"
#include "compile/passes.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

using workspace::numel;

constexpr size_t window = 16;  // how far calls may move

bool is_contiguous(const TensorRef& t) {
  int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.dims[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.dims[d];
  }
  return true;
}

bool can_fuse(const Node& n) {
  if (n.op->fuse != Fuse::pointwise || n.call.n_out != 1 || n.call.variant == int(PointwiseFn::where)) return false;
  const TensorRef& out = n.call.out[0];
  if (!is_float(out.dtype) || !is_contiguous(out) || numel(out) == 0) return false;
  bool is_double = out.dtype == DType::f64;
  for (int i = 0; i < n.call.n_in; ++i) {
    const TensorRef& t = n.call.in[i];
    bool fits = numel(t) == 1 || (numel(t) == numel(out) && is_contiguous(t));
    if (!fits || !is_float(t.dtype) || (t.dtype == DType::f64) != is_double) return false;
  }
  return true;
}

// Whether two calls touch the same bytes, one of them writing.
bool conflict(const Node& a, const Node& b) {
  bool found = false;
  a.for_each_access([&](const Operand& x, const TensorRef& s, bool, bool w) {
    b.for_each_access([&](const Operand& y, const TensorRef& t, bool, bool v) {
      found |= (w || v) && x.buffer == y.buffer && span_of(s, x.offset).overlaps(span_of(t, y.offset));
    });
  });
  return found;
}

// A growing group: its program, and where its values lie.
class Group {
 public:
  explicit Group(const Graph& graph) : graph_(graph) {}

  const std::vector<size_t>& members() const { return members_; }

  // False, and nothing changed, if the call cannot be taken in.
  bool take(size_t index) {
    const Node& n = graph_.nodes[index];
    if (!members_.empty() && numel(n.call.out[0]) != elements_) return false;
    Group before = *this;
    if (add(n)) {
      elements_ = numel(n.call.out[0]);
      members_.push_back(index);
      return true;
    }
    inputs_ = before.inputs_, steps_ = before.steps_, value_at_ = before.value_at_, written_ = before.written_;
    return false;
  }

  // The fused call. `stored` says which written places somebody outside needs.
  Node finish(Graph& graph, const auto& stored) const {
    auto program = std::make_shared<FusedProgram>();
    program->n_in = int(inputs_.size());
    program->n_steps = int(steps_.size());
    std::copy(steps_.begin(), steps_.end(), program->steps);
    for (FusedStep& s : program->steps)
      for (int& from : s.from) from = from < 0 ? program->n_in + (-1 - from) : from;
    Node fused;
    fused.op = &ops::fused;
    fused.range = graph.nodes[members_.back()].range;
    fused.call = {};
    for (const Place& p : inputs_) put(fused.in[fused.call.n_in], fused.call.in[fused.call.n_in], p), ++fused.call.n_in;
    for (const Place& p : written_) {
      if (!stored(p.operand)) continue;
      if (program->n_out == max_outputs) return {};
      int value = value_at_.at(key_of(p));
      program->out[program->n_out++] = value < 0 ? program->n_in + (-1 - value) : value;
      put(fused.out[fused.call.n_out], fused.call.out[fused.call.n_out], p), ++fused.call.n_out;
    }
    for (size_t m : members_) fused.cost.other_flops += graph.nodes[m].cost.other_flops;
    fused.for_each_access(
        [&](const Operand&, const TensorRef& t, bool, bool) { fused.bytes += double(numel(t) * size_of(t.dtype)); });
    fused.call.attrs = Attrs::of(FusedAttrs{program.get()});
    graph.programs.push_back(program);
    return fused;
  }

 private:
  struct Place {
    Operand operand;
    TensorRef ref;
  };
  using Key = std::tuple<int, int64_t, int, int64_t>;  // buffer, offset, type, elements
  static Key key_of(const Place& p) { return {p.operand.buffer, p.operand.offset, int(p.ref.dtype), numel(p.ref)}; }
  static void put(Operand& operand, TensorRef& ref, const Place& p) { operand = p.operand, ref = p.ref; }

  // Only whole tensors are recognised; what overlaps one of ours in part cannot join.
  bool overlaps_partly(const Place& p) const {
    Span s = span_of(p.ref, p.operand.offset);
    for (const auto* list : {&inputs_, &written_})
      for (const Place& other : *list)
        if (other.operand.buffer == p.operand.buffer && key_of(other) != key_of(p) &&
            s.overlaps(span_of(other.ref, other.operand.offset)))
          return true;
    return false;
  }
  // Values: inputs from 0 up, steps from −1 down.
  std::optional<int> read(const Place& p) {
    if (overlaps_partly(p)) return {};
    if (auto it = value_at_.find(key_of(p)); it != value_at_.end()) return it->second;
    if (inputs_.size() == max_inputs) return {};
    int value = int(inputs_.size());
    inputs_.push_back(p);
    value_at_[key_of(p)] = value;
    return value;
  }
  bool add(const Node& n) {
    auto next = [&](PointwiseFn fn, std::array<int, 3> from, const AffineAttrs& affine = {}) {
      steps_.push_back({fn, {from[0], from[1], from[2]}, affine});
      return -int(steps_.size());
    };
    std::array<int, 3> from = {};
    bool linked = members_.empty();
    for (int i = 0; i < n.call.n_in; ++i) {
      Place p{n.in[i], n.call.in[i]};
      linked |= value_at_.count(key_of(p)) && numel(p.ref) > 1;
      std::optional<int> value = read(p);
      if (!value) return false;
      from[size_t(i)] = *value;
    }
    Place to{n.out[0], n.call.out[0]};
    if (!linked || overlaps_partly(to) || steps_.size() + 2 > max_fused_steps) return false;
    for (size_t i = size_t(n.call.n_in); i < 3; ++i) from[i] = from[0];
    auto fn = PointwiseFn(n.call.variant);
    int value = next(fn, from, fn == PointwiseFn::affine ? n.call.attrs.as<AffineAttrs>() : AffineAttrs{});
    if (n.call.accumulates(0)) {
      std::optional<int> old = read(to);
      if (!old) return false;
      value = next(PointwiseFn::add, {*old, value, *old});
    }
    value_at_[key_of(to)] = value;
    bool fresh =
        std::none_of(written_.begin(), written_.end(), [&](const Place& p) { return key_of(p) == key_of(to); });
    if (fresh) written_.push_back(to);
    return true;
  }

  const Graph& graph_;
  std::vector<size_t> members_;
  std::vector<Place> inputs_, written_;
  std::vector<FusedStep> steps_;
  std::map<Key, int> value_at_;
  int64_t elements_ = 0;

 public:
  Group(const Group&) = default;
};

}  // namespace

Report fuse_pointwise(Graph& graph) {
  Report report;
  if (graph.target != DeviceType::cpu) return report;
  std::vector<bool> gone(graph.nodes.size());
  std::vector<std::optional<Node>> replaced(graph.nodes.size());
  // Who touches each buffer, to know what never has to be stored.
  std::vector<std::vector<size_t>> users(graph.buffers.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    graph.nodes[i].for_each_access(
        [&](const Operand& o, const TensorRef&, bool, bool) { users[size_t(o.buffer)].push_back(i); });

  auto now = [&](size_t i) -> const Node& { return replaced[i] ? *replaced[i] : graph.nodes[i]; };
  for (size_t first = 0; first < graph.nodes.size(); ++first) {
    if (gone[first] || replaced[first] || !can_fuse(graph.nodes[first])) continue;
    Group group(graph);
    if (!group.take(first)) continue;
    std::vector<size_t> between;
    for (size_t i = first + 1; i < std::min(graph.nodes.size(), first + window); ++i) {
      if (gone[i]) continue;
      // What has been passed must not mind that the group now comes after it.
      bool free = true;
      for (size_t b : between)
        for (size_t m : group.members()) free = free && (m > b || !conflict(now(b), graph.nodes[m]));
      if (!free) break;
      if (!replaced[i] && can_fuse(graph.nodes[i]) && group.take(i)) continue;
      between.push_back(i);
    }
    const std::vector<size_t>& members = group.members();
    if (members.size() < 2) continue;
    auto is_member = [&](size_t i) { return std::find(members.begin(), members.end(), i) != members.end(); };
    auto stored = [&](const Operand& o) {
      const Buffer& b = graph.buffers[size_t(o.buffer)];
      const std::vector<size_t>& all = users[size_t(o.buffer)];
      return b.external || b.output || !std::all_of(all.begin(), all.end(), is_member);
    };
    Node fused = group.finish(graph, stored);
    if (!fused.op || fused.call.n_out == 0) continue;
    double before = 0;
    std::string names;
    for (size_t m : members) {
      before += graph.nodes[m].bytes;
      names += (names.empty() ? "" : "+") + std::string(graph.nodes[m].op->name);
      gone[m] = true;
    }
    report.lines.push_back(fmt::format("{} in {}: {:.0f} of {:.0f} bytes saved", names, fused.range->path(),
                                       before - fused.bytes, before));
    gone[members.back()] = false;
    replaced[members.back()] = std::move(fused);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (replaced[i]) graph.nodes[i] = *replaced[i];
  remove_nodes(graph, gone);
  return report;
}

}  // namespace sinter::compile
