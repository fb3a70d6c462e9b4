// Note [Lanes] in graph.h: what must wait for what, once the memory plan has said where everything lies.
#pragma once
#include "compile/graph.h"

namespace sinter::compile {

// Fills in Node::waits: two calls of different lanes that touch the same bytes, one of them writing, keep their order.
void order_lanes(Graph& graph);

}  // namespace sinter::compile
