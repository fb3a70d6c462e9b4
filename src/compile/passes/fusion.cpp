#include "compile/passes/fusion.h"

#include <algorithm>
#include <fmt/format.h>

#include "backend/workspace.h"
#include "ops/table.h"

namespace sinter::compile {
namespace {

constexpr size_t window = 16;  // how far calls may move

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

// Columns of the same rows, side by side: the halves that SwiGLU reads. Their spans overlap, their elements do not.
bool are_side_by_side(const Place& a, const Place& b) {
  int last = a.ref.rank - 1;
  if (last < 1 || b.ref.rank != a.ref.rank || a.ref.dtype != b.ref.dtype) return false;
  for (int d = 0; d < last; ++d)
    if (a.ref.dims[d] != b.ref.dims[d] || a.ref.strides[d] != b.ref.strides[d]) return false;
  int64_t size = size_of(a.ref.dtype), distance = std::abs(a.operand.offset - b.operand.offset);
  int64_t width = size * std::max(a.ref.dims[last], b.ref.dims[last]), row = size * a.ref.strides[last - 1];
  return distance >= width && distance + width <= row;
}

}  // namespace

bool is_pointwise(const Graph& graph, const Node& n) {
  if (n.op->kind != OpKind::pointwise || n.call.n_out != 1 || n.call.variant == int(PointwiseFn::where)) return false;
  const TensorRef& out = n.call.out[0];
  bool is_double = out.dtype == DType::f64;
  if (!is_float(out.dtype) || !is_contiguous(out) || numel(out) == 0 ||
      (is_double && graph.target.type == DeviceType::cuda))
    return false;
  for (int i = 0; i < n.call.n_in; ++i) {
    const TensorRef& t = n.call.in[i];
    bool fits = numel(t) == 1 || (numel(t) == numel(out) && is_contiguous(t));
    if (!fits || !is_float(t.dtype) || (t.dtype == DType::f64) != is_double) return false;
  }
  return true;
}

FusionGroup::Key FusionGroup::key_of(const Place& p) {
  return {p.operand.buffer, p.operand.offset, int(p.ref.dtype), numel(p.ref), span_of(p.ref, 0).end};
}

// Only whole tensors are recognised; what overlaps one of ours in part cannot join.
bool FusionGroup::overlaps_partly(const Place& p) const {
  Span s = span_of(p.ref, p.operand.offset);
  for (const auto* list : {&state_.inputs, &state_.written})
    for (const Place& other : *list)
      if (other.operand.buffer == p.operand.buffer && key_of(other) != key_of(p) &&
          s.overlaps(span_of(other.ref, other.operand.offset)) && !are_side_by_side(p, other))
        return true;
  return false;
}

int FusionGroup::read(const Place& p) {
  bool shared = p.varies == Varies::element && numel(p.ref) > 1;
  if (p.varies == Varies::element) {
    if (elements_ == 0) elements_ = numel(p.ref);
    failed_ |= numel(p.ref) != elements_;
  }
  if (auto it = state_.value_at.find(key_of(p)); it != state_.value_at.end()) {
    linked_ |= shared;
    if (it->second >= 0) state_.inputs[size_t(it->second)].is_sum &= p.is_sum;
    for (const auto* list : {&state_.inputs, &state_.written})  // a weight is no activation, even of the same size
      for (const Place& other : *list) failed_ |= key_of(other) == key_of(p) && other.varies != p.varies;
    return it->second;
  }
  failed_ |= overlaps_partly(p) || state_.inputs.size() == max_fused_inputs;
  if (failed_) return 0;
  int value = int(state_.inputs.size());
  state_.inputs.push_back(p);
  return state_.value_at[key_of(p)] = value;
}

int FusionGroup::step(const FusedStep& s) {
  state_.steps.push_back(s);
  return -int(state_.steps.size());
}

void FusionGroup::write(const Place& p, int value, bool accumulate) {
  bool column = p.varies == Varies::column;
  if (accumulate && !column) value = map(PointwiseFn::add, read_sum(p), value);
  failed_ |= overlaps_partly(p);
  if (p.varies == Varies::element) {
    if (elements_ == 0) elements_ = numel(p.ref);
    failed_ |= numel(p.ref) != elements_;
  }
  auto same = [&](const Place& o) { return key_of(o) == key_of(p); };
  auto it = std::find_if(state_.written.begin(), state_.written.end(), same);
  failed_ |= column && (it != state_.written.end() || state_.value_at.count(key_of(p)));
  if (failed_) return;
  if (column && accumulate) state_.accumulate_written |= 1u << state_.written.size();
  if (it == state_.written.end()) state_.written.push_back(p);
  state_.value_at[key_of(p)] = value;
}

void FusionGroup::need_rows(int64_t length) {
  if (row_length_ == 0) row_length_ = length;
  failed_ |= row_length_ != length;
}

bool FusionGroup::take(size_t index, Expand expand) {
  const Node& n = graph_.nodes[index];
  State before = state_;
  int64_t elements = elements_, row_length = row_length_;
  linked_ = members_.empty(), failed_ = false;
  bool done = expand(*this, n);
  if (n.workspace.buffer >= 0) {
    failed_ |= state_.workspace.buffer >= 0;
    state_.workspace = n.workspace, state_.workspace_bytes = n.call.workspace_bytes;
  }
  if (done && linked_ && !failed_ && state_.steps.size() <= max_fused_steps &&
      (row_length_ == 0 || elements_ % row_length_ == 0)) {
    members_.push_back(index);
    return true;
  }
  state_ = std::move(before);
  elements_ = elements, row_length_ = row_length;
  return false;
}

Node FusionGroup::finish(Graph& graph, const std::function<bool(const Operand&)>& stored) const {
  auto program = std::make_shared<FusedProgram>();
  program->n_in = int(state_.inputs.size());
  program->n_steps = int(state_.steps.size());
  program->row_length = row_length_;
  std::copy(state_.steps.begin(), state_.steps.end(), program->steps);
  for (FusedStep& s : program->steps)
    for (int& from : s.from) from = resolved(from);
  Node fused;
  fused.op = &ops::fused;
  fused.range = graph.nodes[members_.back()].range;
  fused.workspace = state_.workspace, fused.call.workspace_bytes = state_.workspace_bytes;
  auto bytes = [](const TensorRef& t) { return double(numel(t) * size_of(t.dtype)); };
  for (const Place& p : state_.inputs) {
    program->in_varies[fused.call.n_in] = p.varies;
    fused.add_input(p.operand, p.ref);
    if (!p.is_sum) fused.bytes += bytes(p.ref);
  }
  for (size_t w = 0; w < state_.written.size(); ++w) {
    const Place& p = state_.written[w];
    if (!stored(p.operand)) continue;
    if (program->n_out == max_outputs) return {};
    program->out[program->n_out++] = resolved(state_.value_at.at(key_of(p)));
    fused.call.accumulate |= (state_.accumulate_written >> w & 1u) << fused.call.n_out;
    fused.add_output(p.operand, p.ref);
    fused.bytes += bytes(p.ref);
  }
  fused.segment = graph.nodes[members_.front()].segment;
  for (size_t m : members_) fused.cost.other_flops += graph.nodes[m].cost.other_flops;
  fused.call.attrs = Attrs::of(FusedAttrs{program.get()});
  graph.programs.push_back(program);
  return fused;
}

bool expand_pointwise(FusionGroup& group, const Node& n) {
  auto place = [&](const Operand& o, const TensorRef& t) {
    bool one = numel(t) == 1 && numel(n.call.out[0]) > 1;
    return Place{o, t, one ? Varies::nothing : Varies::element};
  };
  FusedStep s;
  s.fn = PointwiseFn(n.call.variant);
  if (s.fn == PointwiseFn::affine) s.affine = n.call.attrs.as<AffineAttrs>();
  for (int i = 0; i < 3; ++i) s.from[i] = i < n.call.n_in ? group.read(place(n.in[i], n.call.in[i])) : s.from[0];
  group.write(place(n.out[0], n.call.out[0]), group.step(s), n.call.accumulates(0));
  return true;
}

Report fuse_groups(Graph& graph, FusionGroup::Expand (*expansion)(const Graph&, const Node&),
                   bool (*worthwhile)(const FusionGroup&)) {
  Report report;
  std::vector<bool> gone(graph.nodes.size());
  std::vector<std::optional<Node>> replaced(graph.nodes.size());
  // Who touches each buffer, to know what never has to be stored.
  std::vector<std::vector<size_t>> users(graph.buffers.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    graph.nodes[i].for_each_access(
        [&](const Operand& o, const TensorRef&, bool, bool) { users[size_t(o.buffer)].push_back(i); });

  // Behind which call collectives now come, by its place: a group that was to be one call stood on both sides of them.
  std::vector<size_t> comes_after(graph.nodes.size());

  auto now = [&](size_t i) -> const Node& { return replaced[i] ? *replaced[i] : graph.nodes[i]; };
  auto meets = [&](size_t i, const std::vector<size_t>& others) {
    return std::any_of(others.begin(), others.end(), [&](size_t o) { return conflict(now(i), now(o)); });
  };
  auto joins = [&](FusionGroup& group, size_t i) {
    FusionGroup::Expand expand = replaced[i] ? nullptr : expansion(graph, graph.nodes[i]);
    return expand && group.take(i, expand);
  };
  for (size_t first = 0; first < graph.nodes.size(); ++first) {
    FusionGroup group(graph);
    if (gone[first] || !joins(group, first)) continue;
    std::vector<size_t> between, delayed;
    for (size_t i = first + 1; i < std::min(graph.nodes.size(), first + window); ++i) {
      if (gone[i]) continue;
      if (graph.nodes[i].is_host()) break;
      // What has been passed must not mind that the group now comes after it, nor this call that it comes before
      // collectives that wait for the group.
      bool free = true;
      for (size_t b : between)
        for (size_t m : group.members()) free = free && (m > b || !conflict(now(b), graph.nodes[m]));
      if (!free) break;
      if (graph.nodes[i].is_communication() && (meets(i, group.members()) || meets(i, delayed))) {
        delayed.push_back(i);
        continue;
      }
      if (meets(i, delayed)) break;
      if (!joins(group, i)) between.push_back(i);
    }
    const std::vector<size_t>& members = group.members();
    if (members.size() < 2 || !worthwhile(group)) continue;
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
    }
    if (fused.bytes >= before) continue;
    for (size_t m : members) gone[m] = true;
    report.lines.push_back(fmt::format("{} in {}: {:.0f} of {:.0f} bytes saved", names, fused.range->path(),
                                       before - fused.bytes, before));
    gone[members.back()] = false;
    replaced[members.back()] = std::move(fused);
    for (size_t d : delayed)
      if (d < members.back()) comes_after[d] = std::max(comes_after[d], members.back());
  }
  std::vector<std::vector<size_t>> behind(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (comes_after[i]) behind[comes_after[i]].push_back(i);
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!gone[i] && !comes_after[i]) nodes.push_back(replaced[i] ? std::move(*replaced[i]) : std::move(graph.nodes[i]));
    for (size_t d : behind[i]) nodes.push_back(std::move(graph.nodes[d]));
  }
  graph.nodes = std::move(nodes);
  return report;
}

}  // namespace sinter::compile
