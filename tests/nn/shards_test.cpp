// Parameters as ranks divide them, each rank by itself: who owns what, and what is away.
#include <gtest/gtest.h>

#include "core/attrs.h"
#include "dist/sharding.h"
#include "nn/transformer.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "support/built.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr ShardLevel levels[] = {ShardLevel::broadcast, ShardLevel::optimizer, ShardLevel::gradients,
                                 ShardLevel::parameters};

std::unique_ptr<Parameters> rank_of(ShardLevel level, int rank, int ranks, std::optional<DType> compute = {},
                                    const std::string& frozen = "") {
  Parameters::Options o;
  o.seed = 5;
  o.compute = compute;
  o.shards = {level, rank, ranks, false};
  auto p = std::make_unique<Parameters>(o);
  make_transformer(little_transformer(), *p);
  if (!frozen.empty()) p->freeze(frozen);
  p->allocate();
  return p;
}

// Together ranks own everything once; what is not cut, each of them.
TEST(Shards, OfAllRanksAreTheWhole) {
  for (ShardLevel level : levels)
    for (int ranks : {1, 2, 3, 4, 7}) {
      std::vector<std::unique_ptr<Parameters>> all;
      for (int r = 0; r < ranks; ++r) all.push_back(rank_of(level, r, ranks));
      for (const auto& s : all[0]->stretches()) {
        int64_t at = s.begin;
        for (const auto& p : all) {
          const auto& own = p->stretches()[size_t(s.index)];
          ASSERT_EQ(own.begin, s.begin);
          ASSERT_EQ(own.end, s.end);
          if (!s.cut) {
            EXPECT_TRUE(own.own_begin == s.begin && own.own_end == s.end);
            continue;
          }
          if (own.own_begin == own.own_end) continue;
          EXPECT_EQ(own.own_begin, at);
          at = own.own_end;
          EXPECT_EQ(own.own_begin % squares_block, 0) << "blocks of a norm are not cut";
        }
        EXPECT_EQ(at, s.cut ? s.end : s.begin) << name_of(level) << " " << ranks;
      }
    }
}

TEST(Shards, BeginWithTheSameNumbersAsTheWhole) {
  auto whole = rank_of(ShardLevel::none, 0, 1);
  for (int r = 0; r < 3; ++r) {
    auto p = rank_of(ShardLevel::parameters, r, 3);
    for (const auto& e : p->entries()) {
      std::vector<double> expected = to_vector(whole->find(e.name).value);
      const auto& s = p->stretch_at(e.offset);
      int64_t begin = std::max(e.offset, s.own_begin), end = std::min(e.offset + e.dims.numel(), s.own_end);
      if (begin >= end) continue;
      EXPECT_EQ(to_vector(p->role("master").range(begin, end)),
                std::vector<double>(expected.begin() + (begin - e.offset), expected.begin() + (end - e.offset)))
          << e.name;
    }
  }
}

TEST(Shards, TakeTheMemoryThatTheirLevelSays) {
  constexpr int ranks = 4;
  auto bytes = [&](const Parameters& p, const char* role) { return double(p.role(role).bytes()); };
  auto whole = rank_of(ShardLevel::none, 0, 1, DType::bf16);
  for (ShardLevel level : levels) {
    auto p = rank_of(level, 1, ranks, DType::bf16);
    p->add_role("m", DType::f32, MemoryCategory::optimizer);
    p->allocate_grad();
    double vectors = 0, cut = 0;
    for (const auto& s : p->stretches()) (s.cut ? cut : vectors) += double(s.end - s.begin);
    bool even = level != ShardLevel::broadcast;
    double all = vectors + cut, share = vectors + cut / ranks;
    EXPECT_EQ(bytes(*p, "master"), 4 * (even ? share : all)) << name_of(level);
    EXPECT_EQ(bytes(*p, "copy"), 2 * (level == ShardLevel::parameters ? vectors : all)) << name_of(level);
    EXPECT_EQ(bytes(*p, "gradient"), 4 * (level >= ShardLevel::gradients ? share : all)) << name_of(level);
    if (even) EXPECT_EQ(bytes(*p, "m"), 4 * share) << name_of(level);
    else EXPECT_LT(bytes(*p, "m"), 4 * all / 2) << name_of(level);
  }
}

TEST(Shards, WhatIsAwayIsAskedForAndOtherwiseRefused) {
  auto p = rank_of(ShardLevel::parameters, 1, 2);
  const auto& e = p->find("embedding.weight");  // smaller than a share: rank 0 has all of it
  EXPECT_FALSE(p->role("master").view(e).defined());
  EXPECT_FALSE(e.value.defined());
  EXPECT_TRUE(p->find("norm.weight").value.defined()) << "vectors are whole";
  Tensor leaf;
  {
    Parameters::Options o;
    o.shards = {ShardLevel::parameters, 0, 2, false};
    Parameters q(o);
    q.begin_unit("one");
    leaf = q.add({"w", {64, 64}, {}});
    q.allocate();
    Tensor x = zeros({3, 64}, DType::f32, DeviceType::cpu);
    EXPECT_TRUE(
        mentions(error_of(ErrorKind::usage, [&] { linear(x, leaf); }), {"master of one", "sharded", "dist::Sharding"}));
    int asked = 0;
    q.when_missing([&](const Parameters::Role& role, const Parameters::Stretch& s) {
      ++asked;
      Tensor all = q.memory_for(role, s);
      fill(all, 2);
      q.lend(role, s, all);
    });
    NoGrad off;
    fill(x, 1);
    EXPECT_EQ(to_vector(linear(x, leaf))[0], 128);
    linear(x, leaf);
    EXPECT_EQ(asked, 1) << "it is there until it is taken back";
    q.take_back(q.role("master"), q.stretches()[0]);
    linear(x, leaf);
    EXPECT_EQ(asked, 2);
  }
}

TEST(Shards, FrozenParametersStayWhole) {
  for (ShardLevel level : levels) {
    auto p = rank_of(level, 1, 2, DType::bf16, "embedding.weight");
    const auto& e = p->find("embedding.weight");
    ASSERT_TRUE(e.value.defined()) << name_of(level);
    EXPECT_EQ(to_vector(e.value), to_vector(rank_of(ShardLevel::none, 0, 1)->find(e.name).value));
    EXPECT_TRUE(p->role("copy").view(e).defined());
    EXPECT_FALSE(p->role("gradient").view(e).defined());
  }
}

TEST(Shards, AreNotForAnOptimizersOwnStep) {
  for (ShardLevel level : levels) {
    auto p = rank_of(level, 0, 2);
    AdamW optimizer(*p, {});
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { optimizer.step(0.1); }),
                         {"sharded among 2 ranks", "dist::Sharding", "dist::ShardedOptimizer"}))
        << name_of(level);
  }
}

TEST(Shards, OfOtherRanksAndLevelsAreRefused) {
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { rank_of(ShardLevel::optimizer, 2, 2); }), {"no rank 2 among 2"}));
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { shard_level_named("zero"); }), {"zero", "optimizer, gradients"}));
  auto p = rank_of(ShardLevel::optimizer, 0, 2);
  struct Alone : ProcessGroup {
    int rank() const override { return 0; }
    int size() const override { return 1; }
    const char* name() const override { return "alone"; }
    void run(const Collective&, const void*, void*, void*) override {}
  } alone;
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { dist::Sharding(*p, alone, {ShardLevel::optimizer}); }),
                       {"rank 0 of 2", "rank 0 of 1", "shards_of"}));
}

}  // namespace
}  // namespace sinter
