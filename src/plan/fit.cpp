#include "plan/fit.h"

#include <fmt/format.h>

namespace sinter::plan {
namespace {

constexpr int64_t mib = 1 << 20;

// The largest smaller batch that fits, found by halving the interval; 0 if not even 1 does.
int64_t largest_batch(RunConfig c, const DeviceInfo& card, const MakeModel& make_model) {
  int64_t low = 0, high = c.batch;
  while (high - low > 1) {
    c.batch = (low + high) / 2;
    (fits(c, card, make_model) ? low : high) = c.batch;
  }
  return low;
}

}  // namespace

int64_t typical_outside_bytes() { return 534 * mib; }

int64_t device_need(const Prediction& need) { return need.reserved() + typical_outside_bytes(); }

std::string missing_on(const DeviceInfo& card, const RunConfig& c) {
  if (card.type != DeviceType::cuda || card.compute_capability >= 80) return "";
  if (c.precision.compute == DType::bf16 || c.precision.math == MathMode::tf32) return c.precision.name;
  bool flash = c.model.attention.kind == AttentionKind::flash || c.model.attention.kind == AttentionKind::portable;
  return flash ? "flash attention" : "";
}

bool fits(const RunConfig& c, const DeviceInfo& card, const MakeModel& make_model) {
  if (!missing_on(card, c).empty()) return false;
  Prediction p = predict(c, card, make_model);
  return p.refused.empty() && device_need(p) <= card.memory_bytes;
}

std::string cheapest_change(const RunConfig& original, const DeviceInfo& card, const MakeModel& make_model) {
  // Attention first, which costs nothing: an old card has no flash, and on the others it keeps less.
  RunConfig base = original;
  std::string attention;
  AttentionKind& kind = base.model.attention.kind;
  if (card.compute_capability < 80) {
    if (kind != AttentionKind::naive && kind != AttentionKind::automatic) attention = "--attention naive ";
    kind = AttentionKind::naive;
  } else if (kind == AttentionKind::naive) {
    kind = choose_attention(AttentionKind::automatic, card, original.model.head_dim()).kind;
    if (kind == AttentionKind::flash) attention = "--attention flash ";
  }
  auto trimmed = [](std::string flags) { return flags.substr(0, flags.find_last_not_of(' ') + 1); };
  if (!attention.empty() && fits(base, card, make_model)) return trimmed(attention);
  // The precisions to try: as it is, if the card has it; then the mixed one.
  std::vector<std::pair<RunConfig, std::string>> bases;
  if (missing_on(card, base).empty()) bases.emplace_back(base, attention);
  std::string mixed = card.compute_capability >= 80 ? "bf16" : "fp16";
  if (!original.precision.compute || bases.empty()) {
    bases.emplace_back(base, attention + "--dtype " + mixed + " ");
    bases.back().first.precision = precision_named(mixed);
    if (fits(bases.back().first, card, make_model)) return trimmed(bases.back().second);
  }
  for (const auto& [c, flags] : bases)
    if (int64_t batch = largest_batch(c, card, make_model)) return fmt::format("{}--batch {}", flags, batch);
  for (auto [c, flags] : bases) {
    c.batch = 1;
    for (c.model.ctx /= 2; c.model.ctx >= 32; c.model.ctx /= 2)
      if (fits(c, card, make_model)) return fmt::format("{}--batch 1 --ctx {}", flags, c.model.ctx);
  }
  auto [c, flags] = bases[0];
  int64_t parameters = predict(c, card, make_model).walk.parameters;
  bool custom = c.model.name == "custom";
  for (const char* size : {"2.7B", "xl", "large", "medium", "small", "mini", "tiny"}) {
    ModelConfig smaller = known_size(size);
    smaller.vocab = original.model.vocab, smaller.ctx = original.model.ctx;
    smaller.attention = c.model.attention;
    c.model = smaller;
    Prediction p = predict(c, card, make_model);
    if (p.walk.parameters < parameters && p.refused.empty() && device_need(p) <= card.memory_bytes)
      return fmt::format("{}--size {}{}", flags, size, custom ? " in place of the shape flags" : "");
  }
  return "";
}

}  // namespace sinter::plan
