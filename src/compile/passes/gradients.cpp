// Where updates are folded into gradients' GEMMs, little of the flat gradient buffer is still used. That little gets
// a buffer of its own, and the flat one can be given back (Parameters::release_grad): activations then share the arena
// only, which is as large as they need. Where they need more than the gradients, lying over those (Note [Over
// gradients] in plan.cpp) can take less: both are planned.
#include <algorithm>
#include <fmt/format.h>

#include "compile/lifetimes.h"
#include "compile/passes.h"
#include "core/attrs.h"

namespace sinter::compile {
namespace {

// Bytes between gradients at most: updates read over them, and they are zero.
constexpr int64_t padding = 512 + squares_block * 8;

// Disjoint spans in order, each a multiple of the arena's steps.
std::vector<Span> joined(std::vector<Span> spans) {
  for (Span& s : spans) s = {s.begin / arena_alignment * arena_alignment, aligned(s.end)};
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> all;
  for (const Span& s : spans)
    if (!all.empty() && s.begin < all.back().end) all.back().end = std::max(all.back().end, s.end);
    else all.push_back(s);
  return all;
}

bool covers(std::vector<Span> written, const Span& read) {
  std::sort(written.begin(), written.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  int64_t at = read.begin;
  for (const Span& s : written)
    if (s.overlaps(read)) {
      if (s.begin - at >= padding) return false;
      at = std::max(at, s.end);
    }
  return at > read.begin && read.end - at < padding;
}

// What was done; nothing: empty.
std::string shrink(Graph& graph) {
  for (size_t b = 0, count = graph.buffers.size(); b < count; ++b) {
    if (!graph.buffers[b].external || graph.buffers[b].output || graph.buffers[b].unread.empty()) continue;
    std::vector<Span> written, used;
    // The step reads nothing but what it wrote, nobody reads that afterwards, and no other rank sees this memory.
    bool fits = true;
    for (const Node& n : graph.nodes)
      n.for_each_access([&](const Operand& o, const TensorRef& t, bool reads, bool writes) {
        if (o.buffer != int(b)) return;
        Span span = span_of(t, o.offset);
        fits = fits && !n.is_communication() && !(reads && !covers(written, span)) &&
               !(writes && !graph.buffers[b].is_unread(span));
        if (writes) written.push_back(span);
        used.push_back(span);
      });
    if (!fits) continue;
    used = joined(used);
    int64_t bytes = 0;
    for (const Span& s : used) bytes += s.end - s.begin;

    Buffer kept;
    kept.bytes = bytes;
    kept.lasting = true;
    kept.category = MemoryCategory::gradient;
    kept.holds.dtype = graph.buffers[b].holds.dtype;
    kept.holds.rank = 1;
    kept.holds.dims[0] = bytes / size_of(kept.holds.dtype), kept.holds.strides[0] = 1;
    auto move = [&](Operand& o) {
      if (o.buffer != int(b)) return;
      int64_t before = 0;
      for (const Span& s : used) {
        if (s.begin <= o.offset && o.offset < s.end) return void(o = {int(count), before + o.offset - s.begin});
        before += s.end - s.begin;
      }
    };
    for (Node& n : graph.nodes) {
      for (Operand& o : n.in) move(o);
      for (Operand& o : n.out) move(o);
    }
    std::string done =
        fmt::format("gradients take {} bytes instead of {}: the rest is never stored", bytes, graph.buffers[b].bytes);
    graph.buffers[b].external = {};
    graph.buffers[b].bytes = 0;
    graph.buffers[b].unread.clear();
    if (bytes > 0) graph.buffers.push_back(kept);
    return done;  // there is one flat gradient
  }
  return "";
}

int64_t planned_bytes(Graph graph, const PassOptions& options) {
  passes::plan(graph, options);
  return graph.total_bytes();
}

}  // namespace

Report passes::gradients(Graph& graph, const PassOptions& options) {
  Report report;
  Graph smaller = graph;
  std::string done = shrink(smaller);
  if (done.empty() || planned_bytes(smaller, options) >= planned_bytes(graph, options)) return report;
  graph = std::move(smaller);
  report.lines.push_back(done);
  return report;
}

}  // namespace sinter::compile
