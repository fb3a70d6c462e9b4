#include "compile/compiled.h"

#include <algorithm>
#include <fmt/format.h>

#include "compile/passes.h"
#include "core/clock.h"
#include "ops/ops.h"

namespace sinter::compile {
namespace {

std::string signature(const std::vector<Tensor>& inputs) {
  const Context& c = context();
  std::string s = fmt::format("{} {} {}", c.autocast ? name_of(*c.autocast) : "-", int(c.math), c.grad_enabled);
  for (const Tensor& t : inputs) s += fmt::format(" {}{}", name_of(t.dtype()), t.dims());
  return s;
}

}  // namespace

void check_pass_names(const std::vector<std::string>& names) {
  std::string known = "graph";
  for (const Pass& p : all_passes()) known = std::string(p.name) + ", " + known;
  for (const std::string& name : names) {
    bool found = name == "graph";
    for (const Pass& p : all_passes()) found |= name == p.name;
    check(found, "there is no pass {}; there are {}", name, known);
  }
}

Compiled::Compiled(Step step, DeviceType device, CompileOptions options)
    : step_(std::move(step)), device_(device), options_(std::move(options)) {
  check_pass_names(options_.without);
}

Compiled::Traced& Compiled::compile(const std::vector<Tensor>& inputs) {
  auto traced = std::make_unique<Traced>();
  for (const Tensor& t : inputs) {
    check(t.device() == device_, "a step compiled for {} was given an input on {}; move it with to(device)", name_of(device_),
          name_of(t.device()));
    traced->inputs.push_back(empty(t.dims(), t.dtype(), device_));
  }
  auto ms_since = [](int64_t begin) { return double(steady_ns() - begin) / 1e6; };
  int64_t begin = steady_ns();
  Graph graph = trace(step_, traced->inputs, device_);
  traced->trace_ms = ms_since(begin);
  begin = steady_ns();
  auto off = [&](const char* name) {
    return std::find(options_.without.begin(), options_.without.end(), name) != options_.without.end();
  };
  for (const Pass& p : all_passes()) {
    Report before;
    before.nodes_before = int64_t(graph.nodes.size()), before.bytes_before = bytes_moved(graph);
    Report r = !off(p.name) ? p.run(graph) : p.run == plan_memory ? plan_without_reuse(graph) : Report{};
    if (off(p.name)) continue;
    r.pass = p.name;
    r.nodes_before = before.nodes_before, r.bytes_before = before.bytes_before;
    r.nodes_after = int64_t(graph.nodes.size()), r.bytes_after = bytes_moved(graph);
    traced->reports.push_back(std::move(r));
  }
  traced->passes_ms = ms_since(begin);
  traced->executable = std::make_unique<Executable>(std::move(graph), !off("graph"));
  return *(compilations_[signature(inputs)] = std::move(traced));
}

const std::vector<Tensor>& Compiled::operator()(const std::vector<Tensor>& inputs) {
  auto it = compilations_.find(signature(inputs));
  Traced& t = it == compilations_.end() ? compile(inputs) : *it->second;
  for (size_t i = 0; i < inputs.size(); ++i) copy_into(t.inputs[i], inputs[i]);
  t.executable->run();
  last_ = &t;
  return t.executable->outputs();
}

}  // namespace sinter::compile
