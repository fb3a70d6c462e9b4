#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/philox.h"

namespace sinter {
namespace {

size_t most_likely(std::span<const double> logits) {
  return size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void check_logits(std::span<const double> logits) {
  check(!logits.empty(), "sampling needs at least one logit");
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isnan(logits[i]) || logits[i] == HUGE_VAL)
      fail_with(ErrorKind::numeric,
                "the logit of token {} is {}: the weights or a 16-bit type cannot hold the model; "
                "look at the training log, or use --dtype fp32",
                i, logits[i]);
  if (logits[most_likely(logits)] == -HUGE_VAL)
    fail_with(ErrorKind::numeric, "every logit is -inf: no token can follow; look at the weights");
}

// In [0, 1), to the precision of a double.
double uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  PhiloxBlock block = philox(seed, sequence, position);
  uint64_t bits = uint64_t(block.v[0]) << 32 | block.v[1];
  return double(bits >> 11) * 0x1p-53;
}

}  // namespace

void validate(const SamplingOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature),
        "--temperature {}: must be 0, which takes the most likely token, or positive", o.temperature);
  check(o.top_k >= 0, "--top-k {}: must be at least 1; leave it out to keep all tokens", o.top_k);
  check(o.top_p > 0 && o.top_p <= 1, "--top-p {}: must be more than 0 and at most 1, which keeps all tokens", o.top_p);
}

std::vector<Candidate> candidates(std::span<const double> logits, const SamplingOptions& o) {
  validate(o);
  check_logits(logits);
  size_t best = most_likely(logits);
  if (o.temperature == 0) return {{int64_t(best), 1}};
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i)
    all.push_back({int64_t(i), std::exp((logits[i] - logits[best]) / o.temperature)});
  auto likelier = [&](const Candidate& a, const Candidate& b) {
    double x = logits[size_t(a.token)], y = logits[size_t(b.token)];
    return x != y ? x > y : a.token < b.token;
  };
  auto total = [&] {
    return std::accumulate(all.begin(), all.end(), 0.0, [](double s, const Candidate& c) { return s + c.probability; });
  };
  if (o.top_k > 0 && size_t(o.top_k) < all.size()) {
    std::nth_element(all.begin(), all.begin() + o.top_k, all.end(), likelier);
    all.resize(size_t(o.top_k));
  }
  if (o.top_p < 1) {
    std::sort(all.begin(), all.end(), likelier);
    double wanted = o.top_p * total(), sum = 0;
    size_t kept = 0;
    while (kept < all.size() && sum < wanted) sum += all[kept++].probability;
    all.resize(std::max<size_t>(kept, 1));
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double sum = total();
  for (Candidate& c : all) c.probability /= sum;
  return all;
}

int64_t sample(std::span<const double> logits, const SamplingOptions& o, uint64_t sequence, uint64_t position) {
  std::vector<Candidate> all = candidates(logits, o);
  double left = uniform(o.seed, sequence, position);
  for (const Candidate& c : all) {
    if (left < c.probability) return c.token;
    left -= c.probability;
  }
  // Rounding has left a little: the last that can be drawn at all.
  while (all.size() > 1 && all.back().probability == 0) all.pop_back();
  return all.back().token;
}

}  // namespace sinter
