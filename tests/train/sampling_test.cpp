// What may be drawn, how often it is, and what is refused.
#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/values.h"

namespace sinter {
namespace {

std::set<int64_t> kept(const std::vector<double>& logits, const SamplingOptions& o) {
  std::set<int64_t> tokens;
  double sum = 0;
  for (const Candidate& c : candidates(logits, o)) tokens.insert(c.token), sum += c.probability;
  EXPECT_NEAR(sum, 1, 1e-12);
  return tokens;
}

Values softmax_of(const Values& logits, double temperature) {
  Values p;
  double sum = 0;
  for (double l : logits) sum += p.emplace_back(std::exp(l / temperature));
  for (double& x : p) x /= sum;
  return p;
}

std::vector<int64_t> likeliest_first(const Values& logits) {
  std::vector<int64_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  return order;
}

TEST(Sampling, TemperatureZeroTakesTheMostLikely) {
  SamplingOptions greedy{.temperature = 0};
  for (uint64_t i = 0; i < 20; ++i)
    EXPECT_EQ(sample(Values{0.5, 2, -1, 2, 1.9}, greedy, 1, i), 1) << "the first of two";
}

TEST(Sampling, TopKKeepsTheKMostLikely) {
  Rng rng(1);
  for (int round = 0; round < 50; ++round) {
    Values logits = normals(rng, integer(rng, 1, 300));
    if (round % 3 == 0)
      for (double& l : logits) l = std::round(2 * l);  // many are equal
    std::vector<int64_t> order = likeliest_first(logits);
    for (int64_t k : {1, 2, 7, 100, 1000}) {
      std::set<int64_t> expected(order.begin(), order.begin() + std::min(k, int64_t(order.size())));
      EXPECT_EQ(kept(logits, {.temperature = 0.7, .top_k = k}), expected) << "k " << k;
    }
  }
}

TEST(Sampling, TopPKeepsTheFewestThatReachP) {
  Rng rng(2);
  for (int round = 0; round < 50; ++round) {
    Values logits = normals(rng, integer(rng, 1, 300));
    for (double& l : logits) l *= 3;
    std::vector<int64_t> order = likeliest_first(logits);
    for (double temperature : {0.5, 1.0, 4.0}) {
      Values p = softmax_of(logits, temperature);
      for (double top_p : {1e-9, 0.1, 0.5, 0.9, 0.999, 1.0}) {
        std::set<int64_t> tokens = kept(logits, {.temperature = temperature, .top_p = top_p});
        double sum = 0, smallest = 1;
        for (int64_t t : tokens) sum += p[size_t(t)], smallest = std::min(smallest, p[size_t(t)]);
        EXPECT_EQ(tokens, std::set<int64_t>(order.begin(), order.begin() + int64_t(tokens.size())));
        EXPECT_GE(sum, top_p - 1e-12) << "they reach it …";
        if (top_p < 1) {
          EXPECT_LT(sum - smallest, top_p) << "… and one fewer does not";
        }
      }
    }
  }
}

TEST(Sampling, TopPIsTakenOfWhatTopKLeaves) {
  Values logits = {std::log(4.0), std::log(3.0), std::log(2.0), std::log(1.0)};
  EXPECT_EQ(kept(logits, {.top_k = 2, .top_p = 0.5}), (std::set<int64_t>{0})) << "4 of 7";
  EXPECT_EQ(kept(logits, {.top_p = 0.5}), (std::set<int64_t>{0, 1})) << "4 of 10";
}

TEST(Sampling, WhatIsImpossibleIsNeverDrawn) {
  SamplingOptions o;
  Values logits = {-HUGE_VAL, 0, -HUGE_VAL, 0, -HUGE_VAL};
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(sample(logits, o, 0, i) % 2, 1);
}

// Pearson's statistic against the distribution, for some seeds: its mean is the number of degrees of freedom.
TEST(Sampling, FrequenciesFollowTheDistribution) {
  Rng rng(3);
  Values logits = normals(rng, 12);
  constexpr int64_t draws = 20000;
  for (double temperature : {0.6, 1.0, 2.5})
    for (uint64_t seed : {1u, 7u}) {
      SamplingOptions o{.temperature = temperature, .top_k = 9, .top_p = 0.97, .seed = seed};
      std::vector<Candidate> all = candidates(logits, o);
      std::vector<int64_t> counts(logits.size());
      for (int64_t i = 0; i < draws; ++i) ++counts[size_t(sample(logits, o, uint64_t(i % 8), uint64_t(i / 8)))];
      double statistic = 0;
      int64_t seen = 0;
      for (const Candidate& c : all) {
        double expected = c.probability * draws, difference = double(counts[size_t(c.token)]) - expected;
        ASSERT_GT(expected, 5);
        statistic += difference * difference / expected;
        seen += counts[size_t(c.token)];
      }
      EXPECT_EQ(seen, draws) << "nothing but the candidates";
      double freedom = double(all.size() - 1);
      EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom)) << "temperature " << temperature << " seed " << seed;
    }
}

TEST(Sampling, IsAFunctionOfSeedSequenceAndPosition) {
  Values logits(1000, 0.0);
  SamplingOptions o{.seed = 5};
  auto draw = [&](const SamplingOptions& with, uint64_t sequence) {
    std::vector<int64_t> tokens;
    for (uint64_t i = 0; i < 40; ++i) tokens.push_back(sample(logits, with, sequence, i));
    return tokens;
  };
  EXPECT_EQ(draw(o, 2), draw(o, 2));
  EXPECT_NE(draw(o, 2), draw(o, 3));
  EXPECT_NE(draw(o, 2), draw({.seed = 6}, 2));
  std::vector<int64_t> forwards = draw(o, 2), backwards;
  for (uint64_t i = 40; i-- > 0;) backwards.insert(backwards.begin(), sample(logits, o, 2, i));
  EXPECT_EQ(forwards, backwards) << "whatever was drawn before";
}

// Another device's logits differ in their last bits.
TEST(Sampling, LastBitsOfTheLogitsHardlyEverMatter) {
  Rng rng(4);
  Values logits = normals(rng, 500), others = logits;
  for (size_t i = 0; i < others.size(); ++i) others[i] += (i % 2 ? 1e-7 : -1e-7);
  int differ = 0;
  for (uint64_t i = 0; i < 2000; ++i) differ += sample(logits, {}, 0, i) != sample(others, {}, 0, i);
  EXPECT_LE(differ, 1);
}

TEST(Sampling, RefusesWhatMeansNothing) {
  auto refusal = [](const SamplingOptions& o) { return error_of(ErrorKind::usage, [&] { validate(o); }); };
  EXPECT_TRUE(mentions(refusal({.temperature = -0.5}), {"--temperature -0.5", "0", "positive"}));
  EXPECT_TRUE(mentions(refusal({.temperature = NAN}), {"--temperature"}));
  EXPECT_TRUE(mentions(refusal({.temperature = HUGE_VAL}), {"--temperature"}));
  EXPECT_TRUE(mentions(refusal({.top_k = -3}), {"--top-k -3", "at least 1"}));
  for (double p : {0.0, -0.1, 1.5, double(NAN)}) EXPECT_TRUE(mentions(refusal({.top_p = p}), {"--top-p"})) << p;
  auto fault = [](const Values& logits) { return error_of(ErrorKind::numeric, [&] { sample(logits, {}, 0, 0); }); };
  EXPECT_TRUE(mentions(fault({0, NAN, 1}), {"token 1", "nan"}));
  EXPECT_TRUE(mentions(fault({0, 1, HUGE_VAL}), {"token 2", "inf"}));
  EXPECT_TRUE(mentions(fault({-HUGE_VAL, -HUGE_VAL}), {"-inf"}));
}

}  // namespace
}  // namespace sinter
