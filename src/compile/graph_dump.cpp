#include "compile/graph_dump.h"

#include <fmt/format.h>

#include "compile/dependencies.h"
#include "compile/lifetimes.h"
#include "core/check.h"
#include "system/json.h"
#include "system/units.h"

namespace sinter::compile {
namespace {

std::string type_text(const TensorRef& t) { return fmt::format("{}{}", name_of(t.dtype), Dims(t.dims, t.rank)); }

std::string operand_text(const Graph& g, const Operand& o, const TensorRef& t) {
  const Buffer& b = g.buffers[size_t(o.buffer)];
  std::string at = o.offset ? fmt::format("+{}", o.offset) : "";
  return fmt::format("{}{}{} {}", b.external ? "x" : "b", o.buffer, at, type_text(t));
}

std::string listing(const Graph& g) {
  std::string s;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    std::string to, from;
    auto join = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
    for (int j = 0; j < node.call.n_out; ++j)
      join(to, operand_text(g, node.out[j], node.call.out[j]) + (node.call.accumulates(j) ? " (+=)" : ""));
    for (int i = 0; i < node.call.n_in; ++i)
      join(from, operand_text(g, node.in[i], node.call.in[i]) + (node.op->mutates >> i & 1 ? " (in place)" : ""));
    std::string waits;
    for (int w : node.waits) join(waits, std::to_string(w));
    s += fmt::format("{:5}  {}{}({})\n       in {}{}{}\n", n, to.empty() ? "" : to + " = ", node.op->name, from,
                     node.range->path(), node.lane ? fmt::format(", lane {}", node.lane + 1) : "",
                     waits.empty() ? "" : ", after call " + waits);
  }
  return s;
}

std::string text(const Compilation& c, const std::string& title) {
  const Graph& g = c.executable->graph();
  std::string s = title + "\n";
  s += fmt::format("{} calls; arena {} bytes; of its own buffers at most {} bytes are in use at once\n", g.nodes.size(),
                   g.arena_bytes, g.live_bytes_at_most());
  s += "x: exists outside the step; b: lies in the arena, or over an x that is written later; +n: bytes from its "
       "beginning\n\nbuffers\n";
  std::vector<Lifetime> life = lifetimes(g);
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (!life[b].used()) continue;
    s +=
        fmt::format("  {}{} {} bytes{}, calls {} to {}{}\n", x.external ? "x" : "b", b, x.bytes,
                    x.external ? "" : fmt::format(" at {}{}", x.over >= 0 ? fmt::format("x{}+", x.over) : "", x.offset),
                    life[b].first, life[b].last, x.output ? ", returned" : "");
  }
  return s + "\ncalls\n" + listing(g);
}

std::string dot(const Graph& g) {
  std::string s = "digraph step {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\", fontsize=10];\n";
  auto after = dependencies(g);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    s += fmt::format("  n{} [label=\"{}\\n{}\"];\n", n, g.nodes[n].op->name, g.nodes[n].range->path());
    for (int a : after[n]) s += fmt::format("  n{} -> n{};\n", a, n);
  }
  return s + "}\n";
}

std::string escaped(const std::string& text) {
  std::string s;
  for (char c : text) c == '<' ? s += "&lt;" : c == '>' ? s += "&gt;" : c == '&' ? s += "&amp;" : s += c;
  return s;
}

// The arena as a picture: calls from left to right, addresses upwards, a rectangle for each buffer.
std::string page(const Compilation& c, const std::string& title) {
  const Graph& g = c.executable->graph();
  constexpr double width = 1200, height = 420;
  double calls = double(std::max<size_t>(1, g.nodes.size())), bytes = double(std::max<int64_t>(1, g.arena_bytes));
  std::vector<Lifetime> life = lifetimes(g);
  std::string shapes;
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    if (x.external || x.over >= 0 || !life[b].used()) continue;
    double left = life[b].first / calls * width, right = std::min<double>(life[b].last + 1, calls) / calls * width;
    double top = height - double(x.offset + x.bytes) / bytes * height;
    const char* colour = x.holds.rank < 0                           ? "#b8b8b8"
                         : x.category == MemoryCategory::activation ? "#4878a8"
                                                                    : "#d08a3c";
    shapes += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>b{} {} {}, calls {} to "
        "{}, {}</title></rect>\n",
        left, top, std::max(0.5, right - left), std::max(0.3, double(x.bytes) / bytes * height), colour, b,
        x.holds.rank < 0 ? "scratch" : type_text(x.holds), bytes_text(double(x.bytes)), life[b].first, life[b].last,
        escaped(x.range ? x.range->path() : ""));
  }
  return fmt::format(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font:14px sans-serif;margin:2em;max-width:1240px}}svg{{border:1px solid "
      "#ccc;background:#fafafa;width:100%}}"
      "rect{{stroke:#fff;stroke-width:.3}}pre{{font-size:12px;overflow-x:auto}}</style>\n"
      "<h1>{0}</h1><p>{1} calls; arena {2}; of its own buffers at most {3} are in use at once (those over gradients "
      "are not drawn). Calls from left to right, addresses upwards; "
      "blue: activations, "
      "orange: temporaries, grey: scratch. Point at a rectangle.</p>\n"
      "<svg viewBox=\"0 0 {4} {5}\" role=\"img\" aria-label=\"memory plan\">\n{6}</svg>\n<pre>{7}</pre></html>\n",
      escaped(title), g.nodes.size(), bytes_text(double(g.arena_bytes)), bytes_text(double(g.live_bytes_at_most())),
      width, height, shapes, escaped(text(c, title)));
}

Json operand_json(const Operand& o, const TensorRef& t) {
  Json dims = Json::array(), strides = Json::array();
  for (int d = 0; d < t.rank; ++d) dims.push_back(t.dims[d]), strides.push_back(t.strides[d]);
  return {
      {"buffer", o.buffer}, {"offset", o.offset}, {"dtype", name_of(t.dtype)}, {"dims", dims}, {"strides", strides}};
}

}  // namespace

std::string graph_json(const Graph& g) {
  Json buffers = Json::array(), calls = Json::array();
  std::vector<Lifetime> life = lifetimes(g);
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    const Buffer& x = g.buffers[b];
    buffers.push_back({{"bytes", x.bytes},
                       {"kind", x.external ? "external" : "own"},
                       {"category", x.external ? Json() : Json(name_of(x.category))},
                       {"offset", x.external || !life[b].used() ? Json() : Json(x.offset)},
                       {"over", x.over >= 0 ? Json(x.over) : Json()},
                       {"first", life[b].first},
                       {"last", life[b].last},
                       {"returned", x.output}});
  }
  auto after = dependencies(g);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    Json reads = Json::array(), writes = Json::array();
    node.for_each_access([&](const Operand& o, const TensorRef& t, bool r, bool w) {
      if (r) reads.push_back(operand_json(o, t));
      if (w) writes.push_back(operand_json(o, t));
    });
    calls.push_back({{"op", node.op->name},
                     {"lane", node.lane},
                     {"waits", node.waits},
                     {"workspace", node.workspace.buffer >= 0 ? Json(node.workspace.buffer) : Json()},
                     {"range", node.range->path()},
                     {"reads", reads},
                     {"writes", writes},
                     {"after", after[n]},
                     {"matmul_flops", node.cost.matmul_flops},
                     {"other_flops", node.cost.other_flops},
                     {"bytes", node.bytes}});
  }
  Json all = {{"schema", graph_schema},
              {"device", name_of(g.target.type)},
              {"arena_bytes", g.arena_bytes},
              {"buffers", buffers},
              {"calls", calls}};
  return all.dump(1) + "\n";
}

void check_dump_name(const std::string& path) {
  for (const char* suffix : {".txt", ".dot", ".html", ".json"})
    if (path.ends_with(suffix)) return;
  fail_with(ErrorKind::usage, "--dump {}: the name must end in .txt, .dot, .html or .json", path);
}

std::string dump_text(const Compilation& c, const std::string& title, const std::string& path) {
  if (path.ends_with(".dot")) return dot(c.executable->graph());
  if (path.ends_with(".html")) return page(c, title);
  if (path.ends_with(".json")) return graph_json(c.executable->graph());
  return text(c, title);
}

}  // namespace sinter::compile
