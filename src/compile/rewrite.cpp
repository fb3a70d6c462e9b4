#include "compile/rewrite.h"

#include "backend/device.h"
#include "backend/workspace.h"

namespace sinter::compile {
namespace {

// found(whether it writes) for every access of a call in [from, to) to bytes of the tensor.
template <class F> void for_each_touch(const Graph& graph, const Placed& tensor, int from, int to, F&& found) {
  for (int i = from; i < to; ++i)
    graph.nodes[size_t(i)].for_each_access([&](const Operand& o, const TensorRef& t, bool, bool writes) {
      if (o.buffer == tensor.at.buffer && overlap(t, o.offset, tensor.ref, tensor.at.offset)) found(writes);
    });
}

}  // namespace

bool same_layout(const TensorRef& a, const TensorRef& b) {
  bool same = a.rank == b.rank;
  for (int d = 0; same && d < a.rank; ++d)
    same = a.dims[d] == b.dims[d] && (a.dims[d] == 1 || a.strides[d] == b.strides[d]);
  return same;
}

bool same_place(const Placed& a, const Placed& b) {
  return a.at.buffer == b.at.buffer && a.at.offset == b.at.offset && a.ref.dtype == b.ref.dtype &&
         same_layout(a.ref, b.ref);
}

bool is_written(const Graph& graph, const Placed& tensor, int from, int to) {
  bool any = false;
  for_each_touch(graph, tensor, from, to, [&](bool writes) { any |= writes; });
  return any;
}
bool is_touched(const Graph& graph, const Placed& tensor, int from, int to) {
  bool any = false;
  for_each_touch(graph, tensor, from, to, [&](bool) { any = true; });
  return any;
}

Placed new_tensor(Graph& graph, const Dims& dims, DType dtype, MemoryCategory category, const RangeNode* range,
                  int64_t row) {
  Placed p;
  p.at = {int(graph.buffers.size()), 0};
  p.ref.dtype = dtype;
  p.ref.rank = dims.rank();
  int64_t stride = 1;
  for (int d = dims.rank() - 1; d >= 0; --d) {
    p.ref.dims[d] = dims[d];
    p.ref.strides[d] = stride;
    stride *= d == dims.rank() - 1 && row > 0 ? row : dims[d];
  }
  Buffer b;
  b.bytes = stride * size_of(dtype);
  b.category = category;
  b.range = range;
  b.holds = p.ref;
  graph.buffers.push_back(b);
  return p;
}

Node new_call(Graph& graph, const OpDef& op, const RangeNode* range, const Attrs& attrs, const std::vector<Placed>& in,
              const std::vector<Placed>& out, MathMode math, uint32_t accumulate) {
  Node n;
  n.op = &op;
  n.range = range;
  n.call.variant = op.variant;
  n.call.attrs = attrs;
  n.call.math = math;
  n.call.accumulate = accumulate;
  for (const Placed& p : in) n.add_input(p.at, p.ref);
  for (const Placed& p : out) n.add_output(p.at, p.ref);
  n.for_each_access(
      [&](const Operand&, const TensorRef& t, bool, bool) { n.bytes += double(numel(t) * size_of(t.dtype)); });
  n.call.workspace_bytes = op.workspace ? op.workspace(n.call, graph.target.type) : 0;
  if (n.call.workspace_bytes > 0) {
    Buffer b;
    b.bytes = n.call.workspace_bytes;
    b.category = MemoryCategory::workspace;
    b.range = range;
    b.holds.rank = -1;
    n.workspace = {int(graph.buffers.size()), 0};
    graph.buffers.push_back(b);
  }
  return n;
}

bool fits_hopper(const Graph& graph, std::initializer_list<Placed> tensors) {
  if (!graph.target.hopper_kernels) return false;
  for (const Placed& t : tensors) {
    int64_t piece = 16 / size_of(t.ref.dtype), last = t.ref.rank - 1;
    if (t.at.offset % 16 != 0 || t.ref.strides[last] != 1 || t.ref.dims[last] % piece != 0) return false;
    for (int d = 0; d + 1 < t.ref.rank; ++d)
      if (t.ref.strides[d] % piece != 0) return false;
  }
  return true;
}

const RangeNode* range_above(const std::vector<const RangeNode*>& ranges, const char* name) {
  auto holds = [](const RangeNode* outer, const RangeNode* r) {
    while (r && r != outer) r = r->parent;
    return r == outer;
  };
  const RangeNode* common = *ranges.begin();
  for (const RangeNode* r : ranges)
    while (!holds(common, r)) common = common->parent;
  while (common->kind == RangeKind::op && common->parent) common = common->parent;
  RangeFollower place;
  place.go_to(*common);
  Range range(name, RangeKind::op);
  return &Range::current();
}

void Replacement::apply() {
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    for (Node& n : instead_[i]) nodes.push_back(std::move(n));
    if (!gone_[i]) nodes.push_back(std::move(graph_.nodes[i]));
    for (Node& n : after_[i]) nodes.push_back(std::move(n));
  }
  graph_.nodes = std::move(nodes);
}

}  // namespace sinter::compile
