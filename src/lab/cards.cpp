#include "lab/cards.h"

#include "core/check.h"

namespace sinter::lab {
namespace {

constexpr int64_t mib = 1 << 20;

bool fits_changed(const RunConfig& c, const Card& card, const MakeModel& make_model) {
  return fits(predict(c, make_model), c, card);
}

// The largest smaller batch that fits, found by halving the interval; 0 if not even 1 does.
int64_t largest_batch(RunConfig c, const Card& card, const MakeModel& make_model) {
  int64_t low = 0, high = c.batch;
  while (high - low > 1) {
    c.batch = (low + high) / 2;
    (fits_changed(c, card, make_model) ? low : high) = c.batch;
  }
  return low;
}

}  // namespace

const std::vector<Card>& known_cards() {
  // A little less than the name says: ECC and the driver take their part.
  static const std::vector<Card> cards = {{"T4-16", 15109 * mib, 75},   {"4090-24", 24080 * mib, 89},
                                          {"A100-40", 40370 * mib, 80}, {"H100-80", 81079 * mib, 90},
                                          {"A100-80", 81153 * mib, 80}, {"H200-141", 143156 * mib, 90}};
  return cards;
}

const Card& card_named(const std::string& name) {
  std::string all;
  for (const Card& c : known_cards()) {
    if (c.name == name) return c;
    all += (all.empty() ? "" : ", ") + std::string(c.name);
  }
  fail_with(ErrorKind::usage, "--card {}: unknown; choose one of {}", name, all);
}

int64_t typical_outside_bytes() { return 534 * mib; }

int64_t device_need(const Need& need) { return need.reserved() + typical_outside_bytes(); }

bool has_type(const Card& card, const Precision& p) {
  return card.compute_capability >= 80 || (p.compute != DType::bf16 && p.math != MathMode::tf32);
}

bool fits(const Need& need, const RunConfig& c, const Card& card) {
  return has_type(card, c.precision) && device_need(need) <= card.bytes;
}

std::string cheapest_change(const RunConfig& original, const Card& card, const MakeModel& make_model) {
  // The precisions to try: as it is, if the card has it; then the mixed one.
  std::vector<std::pair<RunConfig, std::string>> bases;
  if (has_type(card, original.precision)) bases.emplace_back(original, "");
  std::string mixed = card.compute_capability >= 80 ? "bf16" : "fp16";
  if (!original.precision.compute || bases.empty()) {
    bases.emplace_back(original, "--dtype " + mixed + " ");
    bases.back().first.precision = precision_named(mixed);
    if (fits_changed(bases.back().first, card, make_model)) return "--dtype " + mixed;
  }
  for (const auto& [c, flags] : bases)
    if (int64_t batch = largest_batch(c, card, make_model)) return fmt::format("{}--batch {}", flags, batch);
  for (auto [c, flags] : bases) {
    c.batch = 1;
    for (c.model.ctx /= 2; c.model.ctx >= 32; c.model.ctx /= 2)
      if (fits_changed(c, card, make_model)) return fmt::format("{}--batch 1 --ctx {}", flags, c.model.ctx);
  }
  auto [c, flags] = bases[0];
  int64_t parameters = predict(c, make_model).parameters;
  bool custom = c.model.name == "custom";
  for (const char* size : {"2.7B", "xl", "large", "medium", "small", "mini", "tiny"}) {
    ModelConfig smaller = known_size(size);
    smaller.vocab = original.model.vocab, smaller.ctx = original.model.ctx;
    c.model = smaller;
    Need need = predict(c, make_model);
    if (need.parameters < parameters && fits(need, c, card))
      return fmt::format("{}--size {}{}", flags, size, custom ? " in place of the shape flags" : "");
  }
  return "";
}

}  // namespace sinter::lab
