// Closed forms of attention: its work, what a machine could do at best, what it holds, and how that grows.
#pragma once
#include <optional>
#include <utility>

#include "lab/attention_work.h"
#include "plan/peaks.h"

namespace sinter::lab {

// Pairs of a query and a key that it sees: batch · heads · ctx², half of it under the causal mask.
double visible_pairs(const AttentionConfig& c);
// Two products forward, five backward (the scores are computed again): 4 · pairs · d, and 2.5 times that.
double attention_flops(const AttentionConfig& c, Pass pass);  // forward, or forward and backward

// The least time of a phase by each of the two units that can hold it up. 0: not known.
struct AttentionLimits {
  double product_ms = 0;
  double exp_ms = 0;  // one exponential per visible pair, forward and again backward
  double ms() const { return std::max(product_ms, exp_ms); }
  const char* binds() const { return ms() == 0 ? "" : exp_ms > product_ms ? "exp unit" : "products"; }
};
struct UnitRates {
  double product = 0;  // FLOP/s, as measured
  double exps = 0;     // exponentials per second: 16 per clock and multiprocessor at the GPU's highest clock
};
UnitRates rates_of(const AttentionConfig& c, plan::Peaks& peaks);
double exp_rate(int multiprocessors, double mhz);
AttentionLimits limits_of(double flops, double exps, const UnitRates& rates);

// Bytes of each tensor held for backward, by name: q, k, v, o, and L (one number per row) or the probabilities.
Json saved_tensors(const AttentionConfig& c);

// The slope of log y over log x by least squares: y grows as x to this power. None for fewer than two different x.
std::optional<double> fitted_exponent(const std::vector<std::pair<double, double>>& points);

}  // namespace sinter::lab
