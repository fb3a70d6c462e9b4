// The optimizer's update of the flat buffers is one call at the end of the step. It works element by element, so it can
// be cut into parts, and each part can run as soon as no call needs its gradients, masters and 16-bit copies any more:
// right after the layer's gradients are complete, while the backward pass goes on. Not where the update waits for all
// gradients: clipping, and loss scaling.
#include <algorithm>
#include <fmt/format.h>

#include "compile/passes.h"
#include "compile/rewrite.h"
#include "compile/updates.h"

namespace sinter::compile {
namespace {

constexpr int most_parts = 64;
constexpr int64_t least_elements = 1 << 20, alignment = 128;  // parameters begin at multiples of 128 elements

// Where an update is cut: into parts of about one size, and where collectives of its gradient begin and end, so that
// none waits for two.
std::vector<int64_t> cuts_of(const Graph& graph, const Node& update) {
  int64_t elements = update.call.in[0].dims[0], size = size_of(update.call.in[1].dtype);
  int64_t step = std::max(least_elements, (elements + most_parts - 1) / most_parts);
  step = (step + alignment - 1) / alignment * alignment;
  std::vector<int64_t> ends = {elements};
  for (const Node& n : graph.nodes) {
    if (!n.is_communication() || n.in[0].buffer != update.in[1].buffer) continue;
    Span span = span_of(n.call.in[0], n.in[0].offset - update.in[1].offset);
    for (int64_t at : {span.begin / size, span.end / size})
      if (at > 0 && at < elements) ends.push_back(at);
  }
  std::sort(ends.begin(), ends.end());
  std::vector<int64_t> cuts = {0};
  for (int64_t end : ends)
    while (cuts.back() < end) cuts.push_back(std::min(end, cuts.back() + step));
  return cuts;
}

}  // namespace

Report passes::early(Graph& graph, const PassOptions&) {
  Report report;
  if (!prepare_first(graph)) return report;
  size_t count = graph.nodes.size();
  Replacement with(graph);
  for (size_t u = 0; u < count; ++u) {
    const Node& n = graph.nodes[u];
    if (!is_update(n)) continue;
    std::vector<int64_t> cuts = cuts_of(graph, n);
    for (size_t p = 0; p + 1 < cuts.size(); ++p) {
      Node part = part_of(n, cuts[p], cuts[p + 1]);
      size_t last = 0;
      for (size_t i = 0; i < u; ++i) {
        if (graph.nodes[i].is_host()) last = i;
        graph.nodes[i].for_each_access([&](const Operand& o, const TensorRef& t, bool, bool) {
          for (int k = 0; k < part.call.n_in; ++k)
            if (is_flat(part, k) && o.buffer == part.in[k].buffer &&
                span_of(t, o.offset).overlaps(span_of(part.call.in[k], part.in[k].offset)))
              last = i;
        });
      }
      with.put_after(int(last), part);
    }
    with.drop({int(u)});
    report.lines.push_back(fmt::format("{} of {} elements in {} parts", n.range->path(), cuts.back(), cuts.size() - 1));
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
