// Which token follows: drawn from the model's logits, or the most likely one.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sinter {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;       // only the k most likely are drawn; 0: all
  double top_p = 1;        // only the fewest, most likely first, whose probabilities add up to p; 1: all
  uint64_t seed = 0;
};
void validate(const SamplingOptions& options);  // refuses values that mean nothing, by their flags

struct Candidate {
  int64_t token;
  double probability;  // among the candidates
};
// The tokens that may be drawn, by id. Of equally likely ones the smaller id comes first where only some are kept.
std::vector<Candidate> candidates(std::span<const double> logits, const SamplingOptions& options);

// Token `position` of sequence `sequence`: a pure function of what is given. A token's range among the numbers that may
// be drawn follows the order of ids, not of probabilities: logits that differ in their last bits, on another device
// say, then give other tokens only where the number falls that near to an edge.
int64_t sample(std::span<const double> logits, const SamplingOptions& options, uint64_t sequence, uint64_t position);

}  // namespace sinter
