// Common subexpressions: a call with the same op, attributes and inputs as an earlier one, whose inputs have not been
// written since, has the same results; whoever reads them reads the earlier ones. What eager mode recomputes in
// backward to save memory is the usual case: with a memory budget only so many are merged that the step stays within
// it (PassOptions::most_merged).
#include <cstring>
#include <map>

#include "compile/passes.h"

namespace sinter::compile {
namespace {

void append(std::string& key, const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); }

void append_layout(std::string& key, const TensorRef& t) {
  append(key, t.dtype), append(key, t.rank);
  key.append(reinterpret_cast<const char*>(t.dims), sizeof(int64_t) * size_t(t.rank));
  key.append(reinterpret_cast<const char*>(t.strides), sizeof(int64_t) * size_t(t.rank));
}

}  // namespace

Report passes::cse(Graph& graph, const PassOptions& options) {
  // How often each buffer has been written so far, and will be in all. Only results written once, by
  // one call, can stand for others.
  std::vector<int> written(graph.buffers.size()), writes(graph.buffers.size()), becomes(graph.buffers.size(), -1);
  for (const Node& n : graph.nodes)
    n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool w) { writes[size_t(o.buffer)] += w; });

  auto replaceable = [&](const Operand& o) {
    const Buffer& b = graph.buffers[size_t(o.buffer)];
    return !b.external && !b.output && o.offset == 0 && writes[size_t(o.buffer)] == 1;
  };
  Report report;
  std::map<std::string, size_t> seen;
  std::vector<bool> dead(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& n = graph.nodes[i];
    for (Operand& o : n.in)
      if (o.buffer >= 0 && becomes[size_t(o.buffer)] >= 0) o.buffer = becomes[size_t(o.buffer)];
    bool pure = !n.is_host() && n.op->mutates == 0 && n.call.accumulate == 0 && n.call.n_in > 0;
    for (int j = 0; j < n.call.n_out; ++j) pure = pure && replaceable(n.out[j]);
    if (pure) {
      std::string key;
      append(key, n.op), append(key, n.call.variant), append(key, n.call.math);
      key.append(reinterpret_cast<const char*>(n.call.attrs.bytes), sizeof n.call.attrs.bytes);
      for (int k = 0; k < n.call.n_in; ++k) {
        append(key, n.in[k].buffer), append(key, n.in[k].offset), append(key, written[size_t(n.in[k].buffer)]);
        append_layout(key, n.call.in[k]);
      }
      for (int j = 0; j < n.call.n_out; ++j) append_layout(key, n.call.out[j]);
      auto [it, fresh] = seen.try_emplace(key, i);
      if (!fresh && int(report.lines.size()) < options.most_merged) {
        const Node& earlier = graph.nodes[it->second];
        for (int j = 0; j < n.call.n_out; ++j) becomes[size_t(n.out[j].buffer)] = earlier.out[j].buffer;
        dead[i] = true;
        report.lines.push_back(n.range->path() + " is " + earlier.range->path());
        continue;
      }
    }
    n.for_each_access([&](const Operand& o, const TensorRef&, bool, bool w) { written[size_t(o.buffer)] += w; });
  }
  remove_nodes(graph, dead);
  return report;
}

}  // namespace sinter::compile
