// Ranks are threads here: each has a group, and with it connections, of its own.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "core/half.h"
#include "dist/group.h"
#include "support/memory_store.h"

namespace sinter::dist {
namespace {

constexpr CollectiveKind kinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                    CollectiveKind::all_gather, CollectiveKind::broadcast, CollectiveKind::barrier};

struct Options {
  double timeout_s = 30;
  bool check_collectives = false, deterministic = false;
};

class DistGloo : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "this build has no gloo (libgloo-dev)";
  }

  // Calls work(group) as each of n ranks, and gives what each threw.
  template <class F> std::vector<std::string> ranks(int n, F work, Options options = {}) {
    MemoryStore store;
    GroupSetting setting;
    setting.store = &store;
    setting.key = "test";
    setting.timeout_s = options.timeout_s;
    setting.check_collectives = options.check_collectives;
    setting.deterministic = options.deterministic;
    for (int i = 0; i < n; i++) setting.ranks.push_back(i);
    std::vector<std::string> thrown(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++) {
      setting.rank = i;
      threads.emplace_back([&, i, setting] {
        try {
          auto group = make_gloo_group(setting);
          work(group);
        } catch (const Error& e) {
          thrown[size_t(i)] = e.what();
          EXPECT_EQ(e.kind(), ErrorKind::peer) << e.what();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    return thrown;
  }
};

void put(DType dtype, void* p, int64_t i, float x) {
  if (dtype == DType::f32) static_cast<float*>(p)[i] = x;
  if (dtype == DType::bf16) static_cast<bf16*>(p)[i] = to_bf16(x);
  if (dtype == DType::f16) static_cast<f16*>(p)[i] = to_f16(x);
}
float take(DType dtype, const void* p, int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(p)[i];
  return dtype == DType::bf16 ? to_float(static_cast<const bf16*>(p)[i]) : to_float(static_cast<const f16*>(p)[i]);
}

// Small whole numbers: every type holds their sums exactly.
float input(int rank, int64_t i) { return float(rank + 1) * float(i % 7 - 3); }

void run_and_check(ProcessGroup& group, const Collective& what, bool in_place) {
  const int n = group.size(), me = group.rank();
  const int64_t share = what.elements / n, width = size_of(what.dtype);
  const bool gathers = what.kind == CollectiveKind::all_gather, scatters = what.kind == CollectiveKind::reduce_scatter;
  const int64_t ins = gathers ? share : what.elements, outs = scatters ? share : what.elements;
  // One place of all elements, and one of its own for the other side.
  std::vector<char> whole(size_t(what.elements * width + 1)), apart(whole.size());
  char* const part = whole.data() + me * share * width;
  char* in = gathers && in_place ? part : whole.data();
  char* out = scatters && in_place ? part : whole.data();
  if (!in_place) out = apart.data();
  for (int64_t i = 0; i < ins; i++) put(what.dtype, in, i, input(me, i));
  group.run(what, in, out, nullptr);

  const float factor = what.reduce == ReduceKind::average ? 1.0f / float(n) : 1.0f;
  const float sum = 0.5f * float(n * (n + 1)) * factor;
  int64_t wrong = 0;
  for (int64_t i = 0; i < outs; i++) {
    float expected = 0;
    switch (what.kind) {
      case CollectiveKind::all_reduce: expected = sum * input(0, i); break;
      case CollectiveKind::reduce_scatter: expected = sum * input(0, me * share + i); break;
      case CollectiveKind::all_gather: expected = input(int(i / share), i % share); break;
      case CollectiveKind::broadcast: expected = input(what.root, i); break;
      case CollectiveKind::barrier: continue;
    }
    wrong += std::abs(take(what.dtype, out, i) - expected) > 1e-5f;
  }
  EXPECT_EQ(wrong, 0) << name_of(what.kind) << ' ' << name_of(what.dtype) << ' ' << what.elements << " of " << n
                      << (in_place ? ", in place" : "");
}

TEST_F(DistGloo, EveryCollective) {
  for (int n : {1, 2, 3, 4}) {
    for (bool deterministic : {false, true}) {
      auto work = [&](const std::unique_ptr<ProcessGroup>& group) {
        EXPECT_STREQ(group->name(), "gloo");
        for (CollectiveKind kind : kinds) {
          if (deterministic && kind != CollectiveKind::all_reduce) continue;  // the others are the same
          for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
            for (int64_t elements : {0, 1, 7, 1000, 300001}) {
              const bool gathers = kind == CollectiveKind::all_gather,
                         scatters = kind == CollectiveKind::reduce_scatter;
              if (gathers || scatters) elements = (elements + n - 1) / n * n;
              Collective what = {.kind = kind, .dtype = dtype, .root = int(elements) % n, .elements = elements};
              run_and_check(*group, what, true);
              run_and_check(*group, what, false);
              what.reduce = ReduceKind::average;
              if (kind == CollectiveKind::all_reduce || scatters) run_and_check(*group, what, elements % 2 == 0);
            }
          }
        }
      };
      for (const std::string& e : ranks(n, work, {.deterministic = deterministic})) EXPECT_EQ(e, "");
    }
  }
}

TEST_F(DistGloo, SumsInOrderOfRanks) {
  // Several pieces of each share, whose last is not whole.
  constexpr int n = 3;
  constexpr size_t elements = 1'000'003;
  std::vector<std::vector<float>> all(n, std::vector<float>(elements));
  std::mt19937 random(1);
  for (auto& in : all) {
    for (float& x : in) x = std::ldexp(float(random()), -int(random() % 40));
  }
  std::vector<float> expected = all[0];
  for (size_t r = 1; r < n; r++) {
    for (size_t i = 0; i < elements; i++) expected[i] += all[r][i];
  }
  auto work = [&](const std::unique_ptr<ProcessGroup>& group) {
    std::vector<float> out(elements);
    const Collective what = {.kind = CollectiveKind::all_reduce, .elements = int64_t(elements)};
    for (int turn = 0; turn < 3; turn++) {
      group->run(what, all[size_t(group->rank())].data(), out.data(), nullptr);
      EXPECT_EQ(out, expected);
    }
  };
  for (const std::string& e : ranks(n, work, {.deterministic = true})) EXPECT_EQ(e, "");
}

TEST_F(DistGloo, AddsDoubles) {
  auto work = [&](const std::unique_ptr<ProcessGroup>& group) {
    std::vector<double> x(1000, 1 + group->rank() * 1e-12);
    group->run({.kind = CollectiveKind::all_reduce, .dtype = DType::f64, .elements = 1000}, x.data(), x.data(),
               nullptr);
    for (double sum : x) EXPECT_EQ(sum, 1 + (1 + 1e-12));
  };
  for (const std::string& e : ranks(2, work)) EXPECT_EQ(e, "");
}

TEST_F(DistGloo, RefusesDifferentCollectives) {
  auto work = [&](const std::unique_ptr<ProcessGroup>& group) {
    std::vector<float> x(1000);
    group->run({.kind = CollectiveKind::all_reduce, .elements = 1000}, x.data(), x.data(), nullptr);  // all agree
    const int64_t elements = group->rank() == 1 ? 999 : 1000;
    group->run({.kind = CollectiveKind::all_reduce, .elements = elements}, x.data(), x.data(), nullptr);
  };
  for (const std::string& e : ranks(3, work, {.check_collectives = true})) EXPECT_NE(e, "");
}

TEST_F(DistGloo, RankThatGoesIsNoticed) {
  std::barrier left(3);
  auto work = [&](std::unique_ptr<ProcessGroup>& group) {
    group->run({.kind = CollectiveKind::barrier}, nullptr, nullptr, nullptr);
    if (group->rank() == 3) return group.reset();
    std::vector<float> x(100'000);
    const Collective what = {.kind = CollectiveKind::all_reduce, .elements = int64_t(x.size())};
    std::string first;
    const auto start = std::chrono::steady_clock::now();
    try {
      group->run(what, x.data(), x.data(), nullptr);
    } catch (const Error& e) {
      first = e.what();
      EXPECT_EQ(e.kind(), ErrorKind::peer) << e.what();
    }
    EXPECT_NE(first, "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    try {
      group->run(what, x.data(), x.data(), nullptr);
      ADD_FAILURE() << "a group that has lost a rank went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), first);
    }
    left.arrive_and_wait();  // also rank 1, whose neighbours in the ring are still there, must learn of it
  };
  for (const std::string& e : ranks(4, work, {.timeout_s = 20})) EXPECT_EQ(e, "");
}

TEST_F(DistGloo, RankThatDoesNotComeTimesOut) {
  std::atomic<bool> over = false;
  auto work = [&](const std::unique_ptr<ProcessGroup>& group) {
    if (group->rank() == 1) return over.wait(false);
    struct Tell {
      std::atomic<bool>& flag;
      ~Tell() {
        flag = true;
        flag.notify_all();
      }
    } tell{over};
    float x = 1;
    group->run({.kind = CollectiveKind::all_reduce, .elements = 1}, &x, &x, nullptr);
  };
  const auto thrown = ranks(2, work, {.timeout_s = 0.5});
  EXPECT_NE(thrown[0], "");
  EXPECT_EQ(thrown[1], "");
}

TEST_F(DistGloo, MissingRankIsNoticedAtTheStart) {
  MemoryStore store;
  GroupSetting setting;
  setting.ranks = {0, 1};
  setting.store = &store;
  setting.timeout_s = 0.2;
  EXPECT_THROW(make_gloo_group(setting), Error);
}

}  // namespace
}  // namespace sinter::dist
