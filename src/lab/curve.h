// Losses over the steps of a run.
#pragma once
#include <vector>

#include "lab/fields.h"
#include "lab/plot.h"

namespace sinter::lab {

struct Curve {
  std::vector<int64_t> steps, validation_steps;  // steps count from 1, and rise
  std::vector<double> loss, validation_loss;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("steps", self.steps);
    f("loss", self.loss);
    f("validation_steps", self.validation_steps);
    f("validation_loss", self.validation_loss);
  }
};

// A record may have been cut or edited: refuses one whose steps do not rise from 1, or that has not a loss for each.
void check_curve(const Curve& curve);

// Of neighbouring steps the mean, so that at most so many are left; evaluations stay.
Curve thinned(const Curve& curve, size_t most);

struct NamedCurve {
  std::string name;
  Curve curve;
};
// All over one another. Steps are put together where there are more than an eye can tell apart.
Chart chart_of(const std::vector<NamedCurve>& curves);

}  // namespace sinter::lab
