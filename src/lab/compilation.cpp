#include "lab/compilation.h"

namespace sinter::lab {

CompilationResult compilation_of(const compile::Compilation& c, const compile::CompileTime& time) {
  const compile::Graph& graph = c.executable->graph();
  CompilationResult r;
  r.trace_ms = time.trace_ms, r.passes_ms = time.passes_ms, r.build_ms = time.build_ms;
  r.calls = int64_t(graph.nodes.size());
  r.arena_bytes = graph.arena_bytes;
  r.live_bytes = graph.live_bytes_at_most();
  r.captured = c.executable->is_captured();
  for (const compile::Report& p : c.reports)
    r.passes.push_back({p.pass,
                        int64_t(p.nodes_before),
                        int64_t(p.nodes_after),
                        int64_t(p.bytes_before),
                        int64_t(p.bytes_after),
                        {},
                        {}});
  return r;
}

}  // namespace sinter::lab
