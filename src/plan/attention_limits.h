// Closed forms of attention: its work, what a machine could do at best, what it holds, and how that grows.
#pragma once
#include <optional>
#include <utility>

#include "plan/peaks.h"
#include "train/run_config.h"

namespace sinter::plan {

// Attention alone, as the attention experiments run it.
struct AttentionProblem {
  int64_t batch = 8, heads = 1, kv_heads = 1, ctx = 1024, head_dim = 64;
  bool causal = true;
  AttentionOptions attention{AttentionKind::naive};
  DeviceType device = DeviceType::cpu;
  Precision precision;  // of q, k and v

  DType type() const { return precision.compute.value_or(precision.master); }
};

// Pairs of a query and a key that it sees: batch · heads · ctx², half of it under the causal mask.
double visible_pairs(const AttentionProblem& c);
// Two products forward, five backward (the scores are recomputed): 4 · pairs · d, and 2.5 times that.
double attention_flops(const AttentionProblem& c, Pass pass);  // forward, or forward and backward

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
UnitRates rates_of(const AttentionProblem& c, plan::Peaks& peaks);
void confirm_rates(const AttentionProblem& c, plan::Peaks& peaks);  // measures again what rates_of reads
double exp_rate(int multiprocessors, double mhz);
AttentionLimits limits_of(double flops, double exps, const UnitRates& rates);

// Bytes of each tensor held for backward, by name: q, k, v, o, and L (one number per row) or the probabilities.
std::vector<std::pair<std::string, int64_t>> saved_tensors(const AttentionProblem& c);

// The slope of log y over log x by least squares: y grows as x to this power. None for fewer than two different x.
std::optional<double> fitted_exponent(const std::vector<std::pair<double, double>>& points);

}  // namespace sinter::plan
