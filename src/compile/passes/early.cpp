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

}  // namespace

Report passes::early(Graph& graph, const PassOptions&) {
  Report report;
  if (!prepare_first(graph)) return report;
  size_t count = graph.nodes.size();
  Replacement with(graph);
  for (size_t u = 0; u < count; ++u) {
    const Node& n = graph.nodes[u];
    if (!is_update(n)) continue;
    int64_t elements = n.call.in[0].dims[0];
    int64_t step = std::max(least_elements, (elements + most_parts - 1) / most_parts);
    step = (step + alignment - 1) / alignment * alignment;
    int parts = 0;
    for (int64_t begin = 0; begin < elements; begin += step) {
      Node part = part_of(n, begin, std::min(elements, begin + step));
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
      ++parts;
    }
    with.drop({int(u)});
    report.lines.push_back(fmt::format("{} of {} elements in {} parts", n.range->path(), elements, parts));
  }
  with.apply();
  return report;
}

}  // namespace sinter::compile
