// Collectives of every backend against what they must come to.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "ops/ops.h"
#include "ranks/world.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// Small integers, which every type holds exactly, and so do their sums over a few ranks.
double value(int rank, int64_t i) { return double((i * 7 + rank * 3) % 11 - 5); }
double sum_over(int ranks, int64_t i) {
  double s = 0;
  for (int r = 0; r < ranks; ++r) s += value(r, i);
  return s;
}

Tensor filled(int64_t n, DType type, void* pool, const std::function<double(int64_t)>& f) {
  Tensor t = empty_in_pool({n}, type, test_device(), pool);
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(f(i));
  copy_into(t, from_vector(v, {n}, test_device()));
  return t;
}

void expect_values(const Tensor& t, const std::function<double(int64_t)>& f, const char* what) {
  std::vector<double> v = to_vector(t);
  for (size_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], f(int64_t(i))) << what << " " << name_of(t.dtype()) << " " << i;
}

TEST(Collectives, ComeToWhatTheyShould) {
  dist::World& w = test_world();
  int n = w.size(), rank = w.rank();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    for (bool shared : {true, false})
      for (DType type : types)
        for (int64_t share : {0, 1, 7, 1000, 100003}) {
          SCOPED_TRACE(backend);
          void* pool = shared ? group->pool() : nullptr;
          if (shared && !pool) continue;
          int64_t all = share * n;
          auto mine = [&](int64_t i) { return value(rank, i); };
          Tensor x = filled(all, type, pool, mine);
          all_reduce(x, *group);
          join_communication(test_device());
          expect_values(
              x, [&](int64_t i) { return sum_over(n, i); }, "all_reduce");

          x = filled(all, type, pool, [&](int64_t i) { return n * mine(i); });
          all_reduce(x, *group, ReduceKind::average);
          join_communication(test_device());
          auto close = [&](double got, int64_t i) {
            EXPECT_NEAR(got, sum_over(n, i), type == DType::bf16 ? 0.2 : 1e-2);
          };
          auto averages = to_vector(x);
          for (size_t i = 0; i < averages.size(); ++i) close(averages[i], int64_t(i));

          x = filled(all, type, pool, mine);
          Tensor part = filled(share, type, pool, [](int64_t) { return -1; });
          reduce_scatter(x, part, *group);
          join_communication(test_device());
          expect_values(
              part, [&](int64_t i) { return sum_over(n, rank * share + i); }, "reduce_scatter");

          x = filled(all, type, pool, [](int64_t) { return -1; });
          all_gather(filled(share, type, pool, mine), x, *group);
          join_communication(test_device());
          expect_values(
              x, [&](int64_t i) { return value(int(i / share), i % share); }, "all_gather");

          for (int root = 0; root < n; ++root) {
            x = filled(all, type, pool, mine);
            broadcast(x, *group, root);
            join_communication(test_device());
            expect_values(
                x, [&](int64_t i) { return value(root, i); }, "broadcast");
          }
        }
  }
}

// In place: a share that lies in the whole.
TEST(Collectives, SharesMayLieInTheWhole) {
  dist::World& w = test_world();
  int n = w.size();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    int64_t share = 5000;
    Tensor x = filled(share * n, DType::f32, group->pool(), [&](int64_t i) { return value(w.rank(), i); });
    Tensor mine = slice(x, 0, w.rank() * share, share);
    reduce_scatter(x, mine, *group);
    join_communication(test_device());
    expect_values(
        mine, [&](int64_t i) { return sum_over(n, w.rank() * share + i); }, "reduce_scatter");
    all_gather(mine, x, *group);
    join_communication(test_device());
    expect_values(
        x, [&](int64_t i) { return sum_over(n, i); }, "all_gather");
  }
}

// Sums of numbers that do not add up exactly have the bits of an addition in the ranks' order.
TEST(Collectives, OfOneHostAddInTheOrderOfRanks) {
  dist::World& w = test_world();
  auto group = test_group();
  auto number = [](int rank, int64_t i) { return std::sin(double(i) * 0.37 + rank) * std::pow(10, rank - 1); };
  for (int64_t elements : {1, 63, 300001}) {
    for (int again = 0; again < 3; ++again) {
      Tensor x = filled(elements, DType::f32, group->pool(), [&](int64_t i) { return number(w.rank(), i); });
      all_reduce(x, *group);
      join_communication(test_device());
      std::vector<double> got = to_vector(x);
      for (int64_t i = 0; i < elements; ++i) {
        float sum = float(number(0, i));
        for (int r = 1; r < w.size(); ++r) sum += float(number(r, i));
        ASSERT_EQ(float(got[size_t(i)]), sum) << i;
      }
    }
  }
}

TEST(Collectives, ManyInARowStayApart) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    std::vector<Tensor> all;
    for (int k = 0; k < 60; ++k) {
      all.push_back(filled(1 + k * 131, DType::f32, group->pool(), [&](int64_t i) { return value(w.rank(), i + k); }));
      all_reduce(all.back(), *group);
    }
    join_communication(test_device());
    for (int k = 0; k < 60; ++k)
      expect_values(
          all[size_t(k)], [&](int64_t i) { return sum_over(w.size(), i + k); }, "one of many");
  }
}

TEST(Collectives, SomeRanksMayFormAGroup) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    std::vector<int> ranks = {w.size() - 1, 0};
    auto group = test_group(backend, ranks);
    ASSERT_EQ(group != nullptr, w.rank() == 0 || w.rank() == w.size() - 1);
    if (!group) continue;
    EXPECT_EQ(ranks[size_t(group->rank())], w.rank());
    Tensor x = filled(100, DType::f32, group->pool(), [&](int64_t i) { return value(group->rank(), i); });
    all_reduce(x, *group);
    join_communication(test_device());
    expect_values(
        x, [](int64_t i) { return sum_over(2, i); }, "all_reduce");
  }
  w.barrier();
}

TEST(Collectives, DifferentOnesAreReportedByAll) {
  dist::World& w = test_world();
  for (const std::string& backend : test_backends()) {
    auto group = test_group(backend);
    Tensor x = filled(100, DType::f32, group->pool(), [](int64_t) { return 1; });
    try {
      all_reduce(slice(x, 0, 0, w.rank() == 1 ? 99 : 100), *group);
      join_communication(test_device());
      wait_for(*group);
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::peer);
      EXPECT_NE(std::string(e.what()).find("rank 1: all_reduce of 99 fp32"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("rank 0: all_reduce of 100 fp32"), std::string::npos) << e.what();
    }
    w.barrier();
  }
}

}  // namespace
}  // namespace sinter
