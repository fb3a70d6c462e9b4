// The closed form beside a run that is played through, failure by failure.
#include "plan/failures.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace sinter::plan {
namespace {

// The time that a run with so much work takes.
double played(const FailureCosts& c, double devices, double interval, int segments, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> until_failure(devices / c.device_failure);
  double now = 0, failure = until_failure(random);
  double safe = 0, work = 0;                   // done and written; done
  std::vector<std::pair<double, double>> due;  // when a checkpoint will be safe, and of how much work
  auto passes = [&](double seconds) {          // false: a failure came first
    if (now + seconds < failure) return now += seconds, true;
    now = failure;
    for (auto [at, done] : due)
      if (at <= now) safe = std::max(safe, done);
    due.clear();
    do {
      failure = now + until_failure(random);
      now = std::min(failure, now + c.restart);
    } while (now == failure);
    work = safe;
    return false;
  };
  while (work < interval * segments) {
    if (!passes(interval + c.save)) continue;
    work += interval;
    due.emplace_back(now + c.write, work);
  }
  return now;
}

TEST(Failures, CostWhatARunWithThemTakes) {
  for (FailureCosts c : {FailureCosts{1e6, 5, 0, 60}, {1e6, 20, 0, 0}, {1e6, 2, 30, 300}, {2e5, 10, 0, 120}})
    for (double devices : {10.0, 300.0}) {
      double interval = best_interval(c, devices);
      int segments = 40000;
      double share = interval * segments / played(c, devices, interval, segments, 7);
      Goodput g = goodput_of(c, devices, interval);
      // Writing counts as if all of it were done again, which is a little too much when failures are frequent.
      EXPECT_NEAR(g.training, share, c.write > 0 ? 0.03 * share : 0.01 * share) << devices << " " << c.save;
      EXPECT_NEAR(g.training + g.saving + g.again + g.down, 1, 1e-12);
    }
}

TEST(Failures, TheBestIntervalIsTheBest) {
  for (double devices : {1.0, 100.0, 10000.0})
    for (double save : {0.5, 30.0}) {
      FailureCosts c{3.6e7, save, 0, 100};
      double best = best_interval(c, devices), rate = devices / c.device_failure;
      for (double other : {0.5, 0.9, 1.1, 2.0})
        EXPECT_LT(goodput_of(c, devices, other * best).training, goodput_of(c, devices, best).training);
      if (rate * save < 1e-4) {
        EXPECT_NEAR(best, std::sqrt(2 * save / rate), 0.01 * best) << "Young's";
      }
    }
}

// 419 unexpected interruptions in 54 days on 16,384 devices: one every three hours.
TEST(Failures, AreThoseOfTheirDevicesTogether) {
  FailureCosts c{54 * 86400.0 * 16384 / 419, 2, 30, 300};
  EXPECT_NEAR(goodput_of(c, 16384, 60).failure / 3600, 3.09, 0.01);
  EXPECT_GT(goodput_of(c, 16384, best_interval(c, 16384)).training, 0.9);
}

TEST(Failures, ACheckpointBeginsWhenTheLastIsWritten) {
  FailureCosts c{1e6, 0, 40, 10};
  EXPECT_EQ(best_interval(c, 1000), 40);
}

}  // namespace
}  // namespace sinter::plan
