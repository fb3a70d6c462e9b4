#include "compile/dependencies.h"

#include <algorithm>

namespace sinter::compile {

std::vector<std::vector<int>> dependencies(const Graph& g) {
  struct Use {
    int node;
    Span span;
    bool writes;
  };
  std::vector<std::vector<Use>> uses(g.buffers.size());
  std::vector<std::vector<int>> after(g.nodes.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    std::vector<int>& mine = after[n];
    g.nodes[n].for_each_access([&](const Operand& o, const TensorRef& t, bool, bool writes) {
      Span span = span_of(t, o.offset);
      std::vector<Use>& earlier = uses[size_t(o.buffer)];
      for (size_t i = earlier.size(); i-- > 0;) {
        const Use& u = earlier[i];
        if (!(u.writes || writes) || !u.span.overlaps(span)) continue;
        if (u.node != int(n)) mine.push_back(u.node);
        if (u.writes && u.span.begin <= span.begin && span.end <= u.span.end)
          break;  // everything before it is behind it
      }
    });
    g.nodes[n].for_each_access([&](const Operand& o, const TensorRef& t, bool, bool writes) {
      uses[size_t(o.buffer)].push_back({int(n), span_of(t, o.offset), writes});
    });
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return after;
}

}  // namespace sinter::compile
