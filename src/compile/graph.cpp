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

StreamRole stream_role(int lane) {
  switch (lane) {
    case main_lane: return StreamRole::main;
    case communication_lane: return StreamRole::communication;
    case copy_lane: return StreamRole::copy;
    default: return StreamRole::side;
  }
}

bool Buffer::is_unread(Span span) const {
  for (bool moved = true; moved && span.begin < span.end;) {
    moved = false;
    for (const Span& s : unread)
      if (s.begin <= span.begin && span.begin < s.end) span.begin = s.end, moved = true;
  }
  return span.begin >= span.end;
}

namespace {

struct Extent {
  int64_t stride, length;
};
using Extents = std::vector<Extent>;  // the longest strides first

Extents extents_of(const TensorRef& t) {
  Extents all;
  for (int d = 0; d < t.rank; ++d)
    if (t.dims[d] != 1) all.push_back({t.strides[d], t.dims[d]});
  std::sort(all.begin(), all.end(), [](const Extent& x, const Extent& y) { return x.stride > y.stride; });
  return all;
}
const Extent* with_stride(const Extents& all, int64_t stride) {
  for (const Extent& e : all)
    if (e.stride == stride) return &e;
  return nullptr;
}
// Two dimensions that could be one are one, where the other tensor does not tell them apart.
Extents joined(Extents all, const Extents& other) {
  for (size_t i = 0; i + 1 < all.size();)
    if (!with_stride(other, all[i].stride) && all[i].stride == all[i + 1].stride * all[i + 1].length) {
      all[i + 1].length *= all[i].length;
      all.erase(all.begin() + int64_t(i));
    } else {
      ++i;
    }
  return all;
}

}  // namespace

// Seen as parts of one tensor that has the strides of both: offsets fall apart into indices, and it is enough that one
// dimension's do not meet. That holds if no part reaches beyond the next longer stride.
bool overlap(const TensorRef& a, int64_t a_offset, const TensorRef& b, int64_t b_offset) {
  if (!span_of(a, a_offset).overlaps(span_of(b, b_offset))) return false;
  int64_t size = size_of(a.dtype);
  if (a.dtype != b.dtype || a_offset % size || b_offset % size) return true;
  Extents of_a = extents_of(a), of_b = extents_of(b);
  auto twice = [](const Extents& all) {
    return std::adjacent_find(all.begin(), all.end(), [](auto& x, auto& y) { return x.stride == y.stride; }) !=
           all.end();
  };
  if (twice(of_a) || twice(of_b)) return true;
  of_a = joined(of_a, of_b), of_b = joined(of_b, of_a);
  std::vector<int64_t> strides;
  for (const Extents* all : {&of_a, &of_b})
    for (const Extent& e : *all) strides.push_back(e.stride);
  std::sort(strides.rbegin(), strides.rend());
  strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
  int64_t at_a = a_offset / size, at_b = b_offset / size, outer = 0;
  bool apart = false;
  for (int64_t stride : strides) {
    if (stride < 1 || outer % stride) return true;
    const Extent *x = with_stride(of_a, stride), *y = with_stride(of_b, stride);
    int64_t from_a = at_a / stride, to_a = from_a + (x ? x->length : 1);
    int64_t from_b = at_b / stride, to_b = from_b + (y ? y->length : 1);
    if (outer && std::max(to_a, to_b) * stride > outer) return true;
    apart |= to_a <= from_b || to_b <= from_a;
    at_a %= stride, at_b %= stride, outer = stride;
  }
  return !apart;
}

int used_until(const Graph& graph, int call) {
  const Node& node = graph.nodes[size_t(call)];
  return node.lane == main_lane && node.chain == 0 ? call : std::min(int(graph.nodes.size()), call + graph.lane_slack);
}

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> all(graph.buffers.size());
  int end = int(graph.nodes.size());
  for (int n = 0; n < end; ++n) {
    const Node& node = graph.nodes[size_t(n)];
    int until = used_until(graph, n);
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

bool Graph::in_one_segment(int first, int last) const {
  return std::none_of(nodes.begin() + first, nodes.begin() + last + 1, [](const Node& n) { return n.is_host(); });
}

void Graph::check_segments(const char* pass) {
  int segment = 0;
  for (Node& n : nodes) {
    if (n.segment < 0) n.segment = segment;
    if (n.segment != segment)
      fail_with(ErrorKind::other, "{}: {} has been moved across a host action, which is a fault of the compiler", pass,
                n.range->path());
    segment += n.is_host();
  }
}

int64_t Graph::total_bytes() const {
  int64_t sum = arena_bytes;
  for (const Buffer& b : buffers)
    if (!b.is_planned()) sum += b.bytes;
  return sum;
}

int64_t Graph::bytes_kept_for(int call) const {
  int64_t sum = 0;
  std::vector<Lifetime> all = lifetimes(*this);
  for (size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].is_planned() && all[b].used() && all[b].first < call && all[b].last >= call)
      sum += aligned(buffers[b].bytes);
  return sum;
}

int64_t Graph::live_bytes_at_most() const {
  std::vector<int64_t> change(nodes.size() + 2);
  std::vector<Lifetime> all = lifetimes(*this);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].is_planned() || !all[b].used()) continue;
    change[size_t(all[b].first)] += aligned(buffers[b].bytes);
    change[size_t(all[b].last) + 1] -= aligned(buffers[b].bytes);
  }
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return most;
}

}  // namespace sinter::compile
