// The memory plan: every buffer of the step gets an offset in one arena, so that no two that are in use together overlap. The largest are
// placed first, each at the lowest offset that is free for as long as it lives.
#include <algorithm>
#include <fmt/format.h>

#include "compile/lifetimes.h"
#include "compile/passes.h"

namespace sinter::compile {
namespace {

std::vector<size_t> own_buffers(const Graph& graph, const std::vector<Lifetime>& life) {
  std::vector<size_t> own;
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    if (!graph.buffers[b].external && life[b].used()) own.push_back(b);
  return own;
}

}  // namespace

Report plan_memory(Graph& graph) {
  std::vector<Lifetime> life = lifetimes(graph);
  std::vector<size_t> order = own_buffers(graph, life);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return graph.buffers[a].bytes > graph.buffers[b].bytes; });
  std::vector<size_t> placed;  // by offset
  graph.arena_bytes = 0;
  for (size_t b : order) {
    Buffer& buffer = graph.buffers[b];
    int64_t bytes = aligned(buffer.bytes), at = 0;
    for (size_t p : placed) {
      const Buffer& other = graph.buffers[p];
      if (!life[b].meets(life[p])) continue;
      if (at + bytes <= other.offset) break;
      at = std::max(at, other.offset + aligned(other.bytes));
    }
    buffer.offset = at;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [&](size_t x, size_t y) { return graph.buffers[x].offset < graph.buffers[y].offset; }),
                  b);
    graph.arena_bytes = std::max(graph.arena_bytes, at + bytes);
  }
  int64_t each = 0;
  for (size_t b : order) each += aligned(graph.buffers[b].bytes);
  Report report;
  report.lines.push_back(fmt::format("{} buffers of {} bytes in {} bytes; no plan can do with less than {}", order.size(), each,
                                     graph.arena_bytes, graph.live_bytes_at_most()));
  return report;
}

Report plan_without_reuse(Graph& graph) {
  graph.arena_bytes = 0;
  for (size_t b : own_buffers(graph, lifetimes(graph))) {
    graph.buffers[b].offset = graph.arena_bytes;
    graph.arena_bytes += aligned(graph.buffers[b].bytes);
  }
  return {};
}

}  // namespace sinter::compile
