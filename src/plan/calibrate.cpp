#include "plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace sinter::plan {

double mean_error(const Machine& m, const std::vector<MeasuredStep>& steps, const Network& network) {
  double sum = 0;
  for (const MeasuredStep& s : steps) sum += std::abs(std::log(time_of(s.work, m, network).seconds / s.seconds));
  return steps.empty() ? 0 : sum / double(steps.size());
}

Machine calibrated(const Machine& start, const std::vector<MeasuredStep>& steps, const Network& network) {
  Machine m = start;
  std::set<std::string> dtypes;
  bool by_host = false, attends = false;
  Machine::Range range{INFINITY, 0};
  for (const MeasuredStep& s : steps)
    for (const Work& w : s.work.parts) {
      dtypes.insert(w.dtype);
      by_host = by_host || w.one_by_one;
      for (const Task& t : w.tasks) {
        attends = attends || t.kind == Task::attention;
        if (t.kind == Task::product) range = {std::min(range.lowest, t.flops), std::max(range.highest, t.flops)};
      }
    }
  struct Number {
    double* value;
    double low, high;
  };
  std::vector<Number> numbers = {{&m.bandwidth, 0.05 * start.bandwidth, 20 * start.bandwidth}, {&m.call_s, 1e-8, 1e-3}};
  for (const std::string& d : dtypes) {
    ProductRate& r = m.products.at(d);
    numbers.push_back({&r.reach, 0.02, 1.1});
    numbers.push_back({&r.edge, 0.1, 5000});
  }
  if (by_host) numbers.push_back({&m.host_call_s, 1e-7, 1e-3});
  if (attends) {
    numbers.push_back({&m.attention.forward, 0.005, 1});
    numbers.push_back({&m.attention.backward, 0.005, 1});
  }
  double best = mean_error(m, steps, network);
  for (double step = 0.5; step > 0.005; step /= 2)
    for (bool better = true; better;) {
      better = false;
      for (const Number& n : numbers)
        for (double factor : {1 + step, 1 / (1 + step)}) {
          double before = *n.value;
          *n.value = std::clamp(before * factor, n.low, n.high);
          double error = *n.value == before ? best : mean_error(m, steps, network);
          if (error < best * (1 - 1e-4)) best = error, better = true;
          else *n.value = before;
        }
    }
  m.source = Machine::measured;
  if (range.highest > 0) m.product_flops = range;
  return m;
}

}  // namespace sinter::plan
