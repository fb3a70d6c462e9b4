#include "plan/work.h"

#include <algorithm>
#include <cmath>

#include "compile/dependencies.h"
#include "core/folded_update.h"

namespace sinter::plan {
namespace {

// A product's shape from what its operands are: folded ones update several weights, whose rows count together.
void take_shape(Task& t, const compile::Node& node) {
  double whole = 0;
  const TensorRef* out = &node.call.out[0];
  if (node.op->kind == OpKind::product_update) {
    for (int i = 0; i < folded_weights(node.call); ++i) {
      out = &node.call.in[folded_input(i, folded_master)];
      whole += double(numel(*out));
    }
  } else {
    whole = double(numel(*out));
  }
  t.n = out->rank > 0 ? double(out->dims[out->rank - 1]) : 1;
  t.m = node.op->kind == OpKind::product_update || out->rank < 2 ? whole / t.n : double(out->dims[out->rank - 2]);
  // Leading dimensions of a linear layer are rows; those of attention's products are batches.
  if (node.op->is_product() && node.call.attrs.as<MatmulAttrs>().fold_a) t.m = whole / t.n;
  t.k = std::max(1.0, t.flops / (2 * whole));
}

Task task_of(const compile::Node& node, int64_t devices_per_node) {
  Task t;
  t.lane = node.lane;
  t.name = node.op->name;
  t.range = node.range->id;
  t.flops = node.cost.executed();
  t.bytes = node.bytes;
  const RangeNode* phase = node.range->phase();
  t.backward = phase && phase->name == "backward";
  if (node.is_communication()) {
    t.kind = Task::collective;
    t.lane = compile::communication_lane;
    t.operation = CollectiveKind(node.call.variant);
    const TensorRef& whole = node.call.in[t.operation == CollectiveKind::all_gather ? 1 : 0];
    t.bytes = double(numel(whole) * size_of(whole.dtype));
    int64_t n = node.call.attrs.as<CollectiveAttrs>().group->size();
    t.ranks = {n, std::min(n, devices_per_node)};
  } else if (node.op->is_product() || node.op->kind == OpKind::product_update) {
    t.kind = Task::product;
    take_shape(t, node);
  } else if (t.flops > 0) {
    t.kind = Task::attention;
    const TensorRef& keys = node.call.in[1];
    t.ctx = keys.rank >= 2 ? double(keys.dims[keys.rank - 2]) : 1;
  }
  return t;
}

}  // namespace

double Work::products() const {
  double all = 0;
  for (const Task& t : tasks)
    if (t.kind != Task::collective) all += t.flops;
  return all;
}

double seconds_of(const Task& t, const std::string& dtype, const Machine& m, const Network& network) {
  if (t.kind == Task::collective) return network.seconds(t.operation, t.bytes, t.ranks);
  double moved = t.bytes / m.bandwidth;
  if (t.kind == Task::moves) return m.call_s + moved;
  const ProductRate& rate = m.product(dtype);
  if (t.kind == Task::product) return m.call_s + std::max(t.flops / rate.rate(t.m, t.n, t.k), moved);
  double part = t.backward ? m.attention.backward : m.attention.forward;
  double seconds = t.flops / (rate.peak * part * t.ctx / (t.ctx + m.attention.edge));
  return m.call_s + std::max(seconds, moved);
}

Work work_of(const compile::Graph& graph, const std::string& dtype, bool eager, int64_t devices_per_node) {
  Work w;
  w.dtype = dtype;
  w.one_by_one = eager && graph.target.type == DeviceType::cuda;
  // Eager calls have the main lane, and collectives their own: those wait for the call before them, and whoever needs
  // what they write waits for them.
  std::vector<std::vector<int>> needs;
  if (eager) needs = compile::dependencies(graph);
  std::vector<int> index(graph.nodes.size(), -1);
  int last_main = -1;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const compile::Node& node = graph.nodes[i];
    if (node.is_host() || !node.op->kernel) continue;
    Task t = task_of(node, devices_per_node);
    if (t.kind == Task::collective && t.ranks.count == 1) continue;
    std::vector<int> before = eager ? needs[i] : node.waits;
    if (eager && t.kind == Task::collective && last_main >= 0) t.waits.push_back(last_main);
    for (int b : before) {
      int at = index[size_t(b)];
      if (at >= 0 && w.tasks[size_t(at)].lane != t.lane) t.waits.push_back(at);
    }
    std::sort(t.waits.begin(), t.waits.end());
    t.waits.erase(std::unique(t.waits.begin(), t.waits.end()), t.waits.end());
    index[i] = int(w.tasks.size());
    if (t.lane == compile::main_lane) last_main = index[i];
    w.tasks.push_back(std::move(t));
  }
  return w;
}

}  // namespace sinter::plan
