// A compiled step as a file: text to read, a graph for Graphviz, a page with the memory plan, JSON for programs.
#pragma once
#include "compile/compiled.h"

namespace sinter::compile {

constexpr const char* graph_schema = "sinter.graph.v1";

// Note [Graph as JSON]: "buffers" (bytes, kind external or own, offset in the arena, first and last call that use them)
// and "calls" in order: op, range, reads and writes (buffer, offset, dtype, dims, strides), the calls each must wait
// for ("after"), FLOPs and the fewest bytes it can move. docs/compile.md explains the fields.
std::string graph_json(const Graph& graph);

// By suffix: .txt, .dot, .html or .json.
void check_dump_name(const std::string& path);
std::string dump_text(const Compilation& compilation, const std::string& title, const std::string& path);

}  // namespace sinter::compile
