// A pass's time in a few parts, from its kernels: also where no event can stand between phases, as in a captured step.
#include <algorithm>
#include <array>
#include <utility>

#include "lab/profile/result.h"
#include "ops/table.h"

namespace sinter::lab {
namespace {

enum Part { products, attention, rest, optimizer, folded, part_count };
constexpr const char* names[] = {"products", "attention", "norms, pointwise, the rest", "optimizer",
                                 "weight gradients with updates"};

// The stages of attention lie in ranges of their own inside a module named attn; a kernel that does them all is an op.
bool is_attention(const RangeNode& range) {
  for (const RangeNode* n = &range; n->parent; n = n->parent) {
    if (n->kind == RangeKind::op && n->name.rfind("attention", 0) == 0) return true;
    bool stage = n->name == "scores" || n->name == "softmax" || n->name == "value";
    if (stage && n->parent->name == "attn") return true;
  }
  return false;
}

Part part_of(const Profile& p, uint32_t id) {
  const RangeNode& range = range_of(id);
  const RangeNode* phase = range.phase();
  if (phase && phase->name == "optimizer") return optimizer;
  if (range.kind == RangeKind::op && range.name == ops::adamw_product.name) return folded;
  if (is_attention(range)) return attention;
  auto cost = p.ops.find(id);
  return cost != p.ops.end() && cost->second.executed_flops > 0 ? products : rest;
}

// Of the products' floor, the part that is attention's: it has the same share of the FLOPs forward and backward.
double attention_share(const Profile& p) {
  double inside = 0, all = 0;
  for (const auto& [id, cost] : p.ops) {
    const RangeNode* phase = range_of(id).phase();
    if (!phase || phase->name != "forward") continue;
    all += cost.matmul_flops;
    if (part_of(p, id) == attention) inside += cost.matmul_flops;
  }
  return all > 0 ? inside / all : 0;
}

}  // namespace

std::vector<TimePart> time_parts(const Profile& p, const plan::Floor& floor) {
  std::array<double, part_count> ms = {}, kernels = {};
  double passes = double(std::max<int64_t>(p.passes, 1));
  for (const Activity& a : p.trace.device) {
    Part part = part_of(p, a.range);
    ms[part] += double(a.duration_ns()) / 1e6 / passes;
    kernels[part] += 1;
  }
  double share = attention_share(p);
  std::array<double, part_count> least = {floor.products_ms * (1 - share), floor.products_ms * share, 0,
                                          floor.optimizer_ms, 0};
  if (kernels[folded] > 0) {  // a third of the products, and all but a little of the optimizer's work
    double gradients = least[products] / 3;
    least[products] -= gradients;
    least[folded] = gradients + std::exchange(least[optimizer], 0);
  }
  std::vector<TimePart> rows;
  for (size_t i = 0; i < part_count; ++i)
    if (kernels[i] > 0)
      rows.push_back({names[i], ms[i], kernels[i] / passes, floor.ms() > 0 ? std::optional(least[i]) : std::nullopt});
  return rows;
}

}  // namespace sinter::lab
