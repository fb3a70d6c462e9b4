#include "lab/curve.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"

namespace sinter::lab {
namespace {

// Steps 1 to width are bucket 0, and so on.
std::map<int64_t, double> means(const std::vector<int64_t>& steps, const std::vector<double>& values, int64_t width) {
  std::map<int64_t, std::pair<double, int64_t>> sums;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    auto& [sum, n] = sums[(steps[i] - 1) / width];
    sum += values[i], ++n;
  }
  std::map<int64_t, double> means;
  for (const auto& [bucket, s] : sums) means[bucket] = s.first / double(s.second);
  return means;
}

int64_t last_step(const Curve& c) {
  return std::max(c.steps.empty() ? 1 : c.steps.back(), c.validation_steps.empty() ? 1 : c.validation_steps.back());
}

}  // namespace

void check_curve(const Curve& c) {
  auto check_steps = [](const char* what, const std::vector<int64_t>& steps, const std::vector<double>& values) {
    check(steps.size() == values.size(), "the curve of {} has {} steps, but {} values", what, steps.size(),
          values.size());
    for (size_t i = 0; i < steps.size(); ++i)
      check(steps[i] > (i == 0 ? 0 : steps[i - 1]) && steps[i] < int64_t(1) << 53,
            "the curve of {}: step {} is in place {}, but steps count from 1 and rise", what, steps[i], i + 1);
  };
  check_steps("losses", c.steps, c.loss);
  check_steps("validation", c.validation_steps, c.validation_loss);
}

Curve thinned(const Curve& c, size_t most) {
  if (c.steps.size() <= most) return c;
  int64_t first = c.steps.front(), width = (last_step(c) - first + int64_t(most)) / int64_t(most);
  std::vector<int64_t> from_first;
  for (int64_t s : c.steps) from_first.push_back(s - first + 1);
  Curve t = c;
  t.steps.clear(), t.loss.clear();
  for (const auto& [bucket, mean] : means(from_first, c.loss, width)) {
    t.steps.push_back(std::min(first + (bucket + 1) * width - 1, c.steps.back()));
    t.loss.push_back(mean);
  }
  return t;
}

Chart chart_of(const std::vector<NamedCurve>& curves) {
  constexpr int64_t most = 200;
  Chart chart{Chart::lines, "Loss while training", "step", "loss", {}, {}};
  int64_t last = 1;
  for (const NamedCurve& c : curves) last = std::max(last, last_step(c.curve));
  int64_t width = (last + most - 1) / most, buckets = (last + width - 1) / width;
  for (int64_t b = 0; b < buckets; ++b) chart.categories.push_back(std::to_string(std::min(last, (b + 1) * width)));
  for (const NamedCurve& c : curves) {
    auto add = [&](const std::string& what, const std::vector<int64_t>& steps, const std::vector<double>& values) {
      if (steps.empty()) return;
      Series s{c.name.empty() ? what : c.name + ", " + what,
               std::vector<std::optional<double>>(chart.categories.size())};
      for (const auto& [bucket, mean] : means(steps, values, width)) s.values[size_t(bucket)] = mean;
      chart.series.push_back(std::move(s));
    };
    add("training", c.curve.steps, c.curve.loss);
    add("validation", c.curve.validation_steps, c.curve.validation_loss);
  }
  return chart;
}

}  // namespace sinter::lab
