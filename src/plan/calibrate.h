// A machine's rates from steps that were measured on it.
#pragma once
#include "plan/step_time.h"

namespace sinter::plan {

struct MeasuredStep {
  StepWork work;
  double seconds = 0;
};

// The rates with which predictions are nearest to all of them (mean of |log|), found by trying each a little larger and
// smaller, from `start` on: reach and edge of each dtype that occurs, bandwidth, and what calls cost. What the steps
// say nothing of stays as it was. The range of products becomes theirs.
Machine calibrated(const Machine& start, const std::vector<MeasuredStep>& steps, const Network& network);
double mean_error(const Machine& machine, const std::vector<MeasuredStep>& steps, const Network& network);

}  // namespace sinter::plan
