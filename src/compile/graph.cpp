#include "compile/graph.h"

#include <algorithm>

#include "compile/lifetimes.h"

namespace sinter::compile {

Span span_of(const TensorRef& t, int64_t offset) {
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.dims[d] == 0) return {offset, offset};
    last += (t.dims[d] - 1) * t.strides[d];
  }
  return {offset, offset + (last + 1) * size_of(t.dtype)};
}

// As parts of one tensor: the same strides, which say how offsets fall apart into indices. Each part must end before the next larger stride.
bool overlap(const TensorRef& a, int64_t a_offset, const TensorRef& b, int64_t b_offset) {
  if (!span_of(a, a_offset).overlaps(span_of(b, b_offset))) return false;
  int64_t size = size_of(a.dtype);
  if (a.dtype != b.dtype || a.rank != b.rank || a_offset % size || b_offset % size) return true;
  int order[max_rank];
  for (int d = 0; d < a.rank; ++d) {
    if (a.strides[d] != b.strides[d] || a.strides[d] < 1) return true;
    order[d] = d;
  }
  std::sort(order, order + a.rank, [&](int x, int y) { return a.strides[x] > a.strides[y]; });
  int64_t at_a = a_offset / size, at_b = b_offset / size;
  bool apart = false;
  for (int i = 0; i < a.rank; ++i) {
    int d = order[i];
    int64_t stride = a.strides[d], from_a = at_a / stride, from_b = at_b / stride;
    at_a %= stride, at_b %= stride;
    if (i > 0) {
      int64_t outer = a.strides[order[i - 1]];
      if (outer % stride || (from_a + a.dims[d]) * stride > outer || (from_b + b.dims[d]) * stride > outer) return true;
    }
    apart |= from_a + a.dims[d] <= from_b || from_b + b.dims[d] <= from_a;
  }
  return !apart || at_a != 0 || at_b != 0;
}

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> all(graph.buffers.size());
  int end = int(graph.nodes.size());
  for (int n = 0; n < end; ++n) {
    const Node& node = graph.nodes[size_t(n)];
    int until = node.lane == 0 ? n : std::min(end, n + graph.lane_slack);
    auto used = [&](const Operand& o) {
      if (o.buffer < 0) return;
      Lifetime& l = all[size_t(o.buffer)];
      if (l.first < 0) l.first = n;
      l.last = std::max(l.last, until);
    };
    node.for_each_access([&](const Operand& o, const TensorRef&, bool, bool) { used(o); });
    used(node.workspace);
  }
  for (size_t b = 0; b < all.size(); ++b)
    if (graph.buffers[b].output) all[b].last = end;
  return all;
}

int64_t Graph::total_bytes() const {
  int64_t sum = arena_bytes;
  for (const Buffer& b : buffers)
    if (b.external) sum += b.bytes;
  return sum;
}

int64_t Graph::bytes_kept_for(int call) const {
  int64_t sum = 0;
  std::vector<Lifetime> all = lifetimes(*this);
  for (size_t b = 0; b < buffers.size(); ++b)
    if (!buffers[b].external && all[b].used() && all[b].first < call && all[b].last >= call)
      sum += aligned(buffers[b].bytes);
  return sum;
}

int64_t Graph::live_bytes_at_most() const {
  std::vector<int64_t> change(nodes.size() + 2);
  std::vector<Lifetime> all = lifetimes(*this);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].external || !all[b].used()) continue;
    change[size_t(all[b].first)] += aligned(buffers[b].bytes);
    change[size_t(all[b].last) + 1] -= aligned(buffers[b].bytes);
  }
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return most;
}

}  // namespace sinter::compile
