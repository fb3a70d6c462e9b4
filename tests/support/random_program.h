// Random expression graphs: tensors used many times, views of shared gradients, diamonds, broadcasting.
#pragma once
#include "support/values.h"

namespace sinter {

struct ProgramStep {
  int op, a, b;
};
struct Program {
  std::vector<Dims> leaves;
  std::vector<ProgramStep> steps;
  std::vector<int> losses;  // which values are summed, some twice
};
Program random_program(Rng& rng);
std::string describe(const Program& p);
Tensor loss_of(const Program& p, const std::vector<Tensor>& leaves);

}  // namespace sinter
