// The memory plan: every buffer of the step gets a place, so that no two that are in use together overlap. The largest
// are placed first, each at the lowest offset that is free for as long as it lives.
//
// Note [Over gradients]: places are in the arena, or over memory that exists anyway and whose contents do
// not matter for a while: the flat gradient buffer. Its ranges are filled from the last layer's to the
// first's while the activations of those layers die (or never, where updates are folded), so that most
// activations cost no memory of their own.
#include <algorithm>
#include <fmt/format.h>

#include "backend/workspace.h"
#include "compile/lifetimes.h"
#include "compile/passes.h"

namespace sinter::compile {
namespace {

std::vector<size_t> own_buffers(const Graph& graph, const std::vector<Lifetime>& life) {
  std::vector<size_t> own;
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    if (graph.buffers[b].is_planned() && life[b].used()) own.push_back(b);
  return own;
}

// Where buffers can be placed: what is taken, by offset.
struct Space {
  struct Taken {
    Span span;
    Lifetime life;
  };
  int over = -1;             // an existing buffer; -1: the arena
  int64_t size = INT64_MAX;  // the arena grows
  std::vector<Taken> taken = {};

  // The lowest offset that is free, or -1.
  int64_t find(int64_t bytes, const Lifetime& life) const {
    int64_t at = 0;
    for (const Taken& t : taken) {
      if (!life.meets(t.life)) continue;
      if (at + bytes <= t.span.begin) break;
      at = std::max(at, aligned(t.span.end));
    }
    return size - at >= bytes ? at : -1;
  }
  void take(const Taken& t) {
    taken.insert(std::upper_bound(taken.begin(), taken.end(), t,
                                  [](const Taken& a, const Taken& b) { return a.span.begin < b.span.begin; }),
                 t);
  }
};

bool is_dense(const TensorRef& t) {
  Span s = span_of(t, 0);
  return s.end - s.begin == numel(t) * size_of(t.dtype);
}

// Existing buffers that the step may use as it likes for some time, with what is taken of them: what it writes, from
// the first write to the end (or to the last use, if nobody reads it after the step); and always what it reads before,
// or what somebody else may read.
std::vector<Space> overwritten(const Graph& graph) {
  struct Range {
    Span span;
    int first_write, last_use;
    bool read_before = false, unread = false;  // unread: after the step
  };
  std::vector<std::vector<Range>> ranges(graph.buffers.size());
  std::vector<std::vector<Span>> reads(graph.buffers.size());
  std::vector<bool> unfit(graph.buffers.size());
  int end = int(graph.nodes.size());
  auto each = [&](auto&& f) {
    for (int n = 0; n < end; ++n)
      graph.nodes[size_t(n)].for_each_access([&](const Operand& o, const TensorRef& t, bool reads, bool writes) {
        const Buffer& b = graph.buffers[size_t(o.buffer)];
        if (b.external && !b.output) f(n, size_t(o.buffer), t, span_of(t, o.offset), reads, writes);
      });
  };
  each([&](int n, size_t b, const TensorRef& t, Span span, bool reads, bool writes) {
    // A collective changes what others have written: it is one more use of it.
    if (!writes || (reads && graph.nodes[size_t(n)].is_communication())) return;
    bool known = false, overlaps = false;
    for (const Range& r : ranges[b]) {
      known |= r.span.contains(span);
      overlaps |= r.span.overlaps(span);
    }
    if (known) return;
    unfit[b] = unfit[b] || overlaps || !is_dense(t);
    ranges[b].push_back({span, n, n});
  });
  each([&](int n, size_t b, const TensorRef&, Span span, bool is_read, bool) {
    if (is_read) reads[b].push_back(span);
    for (Range& r : ranges[b])
      if (r.span.overlaps(span)) {
        r.last_use = std::max(r.last_use, used_until(graph, n));
        r.read_before |= is_read && n <= r.first_write;
      }
  });
  std::vector<Space> spaces;
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const Buffer& buffer = graph.buffers[b];
    if (unfit[b] || (ranges[b].empty() && buffer.unread.empty())) continue;
    for (Range& r : ranges[b]) r.unread = buffer.is_unread(r.span);
    // What is never touched counts as a range that lasts no time.
    for (const Span& s : buffer.unread) {
      auto touched = [&](const Span& other) { return other.overlaps(s); };
      if (std::none_of(reads[b].begin(), reads[b].end(), touched) &&
          std::none_of(ranges[b].begin(), ranges[b].end(), [&](const Range& r) { return touched(r.span); }))
        ranges[b].push_back({s, end + 1, end + 1, false, true});
    }
    Space s{int(b), buffer.bytes};
    std::sort(ranges[b].begin(), ranges[b].end(),
              [](const Range& x, const Range& y) { return x.span.begin < y.span.begin; });
    int64_t at = 0;
    for (const Range& r : ranges[b]) {
      if (r.span.begin > at) s.take({{at, r.span.begin}, {0, end}});
      s.take({r.span, {r.read_before ? 0 : r.first_write, r.unread ? r.last_use : end}});
      at = r.span.end;
    }
    if (at < s.size) s.take({{at, s.size}, {0, end}});
    spaces.push_back(std::move(s));
  }
  return spaces;
}

}  // namespace

Report passes::plan(Graph& graph, const PassOptions&) {
  std::vector<Lifetime> life = lifetimes(graph);
  std::vector<size_t> order = own_buffers(graph, life);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return graph.buffers[a].bytes > graph.buffers[b].bytes; });
  std::vector<Space> spaces = overwritten(graph);
  spaces.push_back({});
  graph.arena_bytes = 0;
  int64_t each = 0, over = 0;
  for (size_t b : order) {
    Buffer& buffer = graph.buffers[b];
    int64_t bytes = aligned(buffer.bytes);
    each += bytes;
    for (Space& s : spaces) {
      if (s.over >= 0 && buffer.output) continue;
      buffer.offset = s.find(bytes, life[b]);
      if (buffer.offset < 0) continue;
      buffer.over = s.over;
      s.take({{buffer.offset, buffer.offset + bytes}, life[b]});
      if (s.over >= 0) over += bytes;
      else graph.arena_bytes = std::max(graph.arena_bytes, buffer.offset + bytes);
      break;
    }
  }
  Report report;
  report.lines.push_back(
      fmt::format("{} buffers of {} bytes: {} of them in gradients' memory, the rest in {}; in use at once are {}",
                  order.size(), each, over, graph.arena_bytes, graph.live_bytes_at_most()));
  return report;
}

void plan_without_reuse(Graph& graph) {
  graph.arena_bytes = 0;
  for (size_t b : own_buffers(graph, lifetimes(graph))) {
    graph.buffers[b].offset = graph.arena_bytes;
    graph.arena_bytes += aligned(graph.buffers[b].bytes);
  }
}

}  // namespace sinter::compile
