#include "plan/failures.h"

#include <algorithm>
#include <cmath>

namespace sinter::plan {

double best_interval(const FailureCosts& c, double devices) {
  double rate = devices / c.device_failure;
  // (1 − x)·e^(x + f·s) falls from more than 1 to 0 as x, which is f·t, goes from 0 to 1.
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    double x = (low + high) / 2;
    (std::log1p(-x) + x + rate * c.save > 0 ? low : high) = x;
  }
  return std::max(low / rate, c.write - c.save);
}

Goodput goodput_of(const FailureCosts& c, double devices, double interval) {
  double rate = devices / c.device_failure;
  double time = std::exp(rate * (c.restart + c.write)) * std::expm1(rate * (interval + c.save)) / rate;
  Goodput g;
  g.failure = 1 / rate, g.interval = interval;
  g.training = interval / time, g.saving = c.save / time;
  g.down = -std::expm1(-rate * c.restart);  // so much of all time lies less than a restart after a failure
  g.again = std::max(0.0, 1 - g.training - g.saving - g.down);
  return g;
}

}  // namespace sinter::plan
