// From which call to which a buffer must keep its memory.
#pragma once
#include "compile/graph.h"

namespace sinter::compile {

struct Lifetime {
  int first = -1, last = -1;  // nodes that use it; outputs live beyond the last node
  bool used() const { return first >= 0; }
  bool meets(const Lifetime& o) const { return first <= o.last && o.first <= last; }
};
std::vector<Lifetime> lifetimes(const Graph& graph);
// The call until which memory that a call uses must be left alone: a lane other than the first may be behind.
int used_until(const Graph& graph, int call);

// Memory is handed out in these steps: as aligned as a block of its own would be, so that
// GEMMs choose the same algorithms.
constexpr int64_t arena_alignment = 512;
inline int64_t aligned(int64_t bytes) { return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment; }

}  // namespace sinter::compile
