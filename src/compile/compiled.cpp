#include "compile/compiled.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "compile/lane_order.h"
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

constexpr double gib = 1024.0 * 1024 * 1024;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<Report> run_passes(Graph& graph, const std::vector<std::string>& without, const PassOptions& options) {
  std::vector<Report> reports;
  for (const Pass& p : all_passes()) {
    if (contains(without, p.name)) {
      if (p.run == passes::plan) plan_without_reuse(graph);
      continue;
    }
    int64_t nodes = int64_t(graph.nodes.size());
    double bytes = bytes_moved(graph);
    Report r = p.run(graph, options);
    graph.check_segments(p.name);
    r.pass = p.name;
    r.nodes_before = nodes, r.nodes_after = int64_t(graph.nodes.size());
    r.bytes_before = bytes, r.bytes_after = bytes_moved(graph);
    reports.push_back(std::move(r));
  }
  return reports;
}

// How many results that eager mode recomputes the budget allows to keep. The more are kept, the more memory it
// takes, nearly always: bisection finds it.
int most_merged_within_budget(const Graph& graph, const CompileOptions& options, PassOptions tried) {
  auto bytes_with = [&](int merged) {
    Graph copy = graph;
    tried.most_merged = merged;
    run_passes(copy, options.without, tried);
    return copy.total_bytes();
  };
  if (bytes_with(INT32_MAX) <= options.memory_budget) return INT32_MAX;
  int64_t least = bytes_with(0);
  if (least > options.memory_budget)
    fail_with(ErrorKind::memory,
              "--memory-budget {:.3g}: the step needs {:.3g} GiB even if what is cheap is computed again; give it "
              "more, or use a smaller "
              "--batch or --ctx",
              double(options.memory_budget) / gib, double(least) / gib);
  int good = 0, bad = int(graph.nodes.size());
  while (bad - good > 1) {
    int middle = good + (bad - good) / 2;
    (bytes_with(middle) <= options.memory_budget ? good : bad) = middle;
  }
  return good;
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& p : all_passes()) names.emplace_back(p.name);
  names.emplace_back("graph");
  return names;
}

CompileOptions passes_named(const std::string& text) {
  std::vector<std::string> all = pass_names(), on;
  if (text == "all") return {};
  for (size_t begin = 0; text != "none" && begin <= text.size();) {
    size_t end = std::min(text.find('+', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    check(contains(all, name),
          "there is no pass \"{}\"; choose all or none by itself, or some of {} with + between them", name,
          fmt::join(all, ", "));
    check(!contains(on, name), "pass \"{}\" is named twice; passes run once, in an order of their own", name);
    on.push_back(name);
  }
  CompileOptions o;
  for (const std::string& name : all)
    if (!contains(on, name)) o.without.push_back(name);
  return o;
}

Compiled::Compiled(Step step, DeviceType device, CompileOptions options, std::shared_ptr<Arena> arena)
    : step_(std::move(step)),
      device_(device),
      options_(std::move(options)),
      arena_(arena ? std::move(arena) : std::make_shared<Arena>(device)) {
  for (const std::string& name : options_.without) check(contains(pass_names(), name), "there is no pass \"{}\"", name);
}

Compiled::Traced& Compiled::find_or_compile(const std::vector<Tensor>& inputs) {
  std::string key = signature(inputs);
  auto [begin, end] = compilations_.equal_range(key);
  for (auto it = begin; it != end; ++it)
    if (it->second->windows.hold()) return *it->second;
  return *compilations_.emplace(key, compile(inputs))->second;
}

std::unique_ptr<Compiled::Traced> Compiled::compile(const std::vector<Tensor>& inputs) {
  auto traced = std::make_unique<Traced>();
  for (const Tensor& t : inputs) {
    check(t.device() == device_, "a step compiled for {} was given an input on {}; move it with to(device)",
          name_of(device_), name_of(t.device()));
    traced->inputs.push_back(empty(t.dims(), t.dtype(), device_));
  }
  auto ms_since = [](int64_t begin) { return double(steady_ns() - begin) / 1e6; };
  int64_t begin = steady_ns();
  Graph graph = trace(step_, traced->inputs, device_, &traced->windows);
  traced->time.trace_ms = ms_since(begin);
  PassOptions options{options_.deterministic};
  begin = steady_ns();
  if (options_.memory_budget > 0) options.most_merged = most_merged_within_budget(graph, options_, options);
  traced->reports = run_passes(graph, options_.without, options);
  order_lanes(graph);
  traced->time.passes_ms = ms_since(begin);
  begin = steady_ns();
  if (traced->windows.release_gradients()) allocator_of(device_).release_cached();  // the arena takes its place
  traced->executable = std::make_unique<Executable>(std::move(graph), arena_, !contains(options_.without, "graph"));
  traced->time.build_ms = ms_since(begin);
  return traced;
}

CompileTime Compiled::compile_time() const {
  CompileTime sum;
  for (const auto& [key, traced] : compilations_) sum += traced->time;
  return sum;
}

const std::vector<Tensor>& Compiled::operator()(const std::vector<Tensor>& inputs) {
  Traced& t = find_or_compile(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) copy_into(t.inputs[i], inputs[i]);
  t.executable->run();
  t.windows.replayed();
  last_ = &t;
  return t.executable->outputs();
}

}  // namespace sinter::compile
