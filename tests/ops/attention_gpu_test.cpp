// The CUDA attention kernels against attention spelled out in float64: Hopper's own and the portable one, the latter
// also with no more shared memory than an RTX 4090 has.
#include <cmath>
#include <cstdlib>

#include "autograd/tape.h"
#include "support/attention_reference.h"
#include "support/gpu.h"

namespace sinter {
namespace {

constexpr DeviceType cuda = DeviceType::cuda;

struct Variant {
  const char* name;
  AttentionKernel kernel;
  const char* shared_limit;  // SINTER_SHARED_LIMIT
};
constexpr Variant variants[] = {{"best", AttentionKernel::best, nullptr},
                                {"portable", AttentionKernel::portable, nullptr},
                                {"portable_99KiB", AttentionKernel::portable, "101376"}};

class AttentionGpu : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    SINTER_REQUIRE_GPU();
    if (cuda_backend()->info().compute_capability < 80)
      GTEST_SKIP() << "SKIPPED: the kernels need compute capability 8.0";
    if (GetParam().shared_limit) setenv("SINTER_SHARED_LIMIT", GetParam().shared_limit, 1);
  }
  void TearDown() override { unsetenv("SINTER_SHARED_LIMIT"); }
  // Every type on one shape; the inputs lie among NaNs, at an address that TMA takes or, with
  // a shift, one that it does not.
  void check(AttentionShape s, Rng& rng, int64_t shift, double size = 1) {
    s.attrs.kernel = GetParam().kernel;
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      // Backward sums do∘o, and o has been rounded. Over a few columns that error does not average out; naive
      // never uses o and has none of it.
      if (is_16bit(type) && s.D < 8) continue;
      AttentionInputs x = random_inputs(s, rng, type, size);
      AttentionResults exact = spelled_out(s, cast_to(x, DType::f64));
      AttentionInputs there = among_nans(on_device(x, cuda), shift);
      AttentionResults naive = type == DType::f32 ? AttentionResults{} : spelled_out(s, x);
      std::string what = fmt::format("{} {} shift {}", s.text(), name_of(type), shift);
      AttentionResults r = by_the_op(s, there);
      if (type == DType::f32) expect_close(r, exact, 1e-5, what, 1e-4);
      else expect_fair(r, naive, exact, what, 0.02);
      for (size_t i = 0; i < r.lse.size(); ++i)
        ASSERT_TRUE(r.lse[i] == exact.lse[i] ||
                    std::abs(r.lse[i] - exact.lse[i]) <= 1e-5 * std::max(1.0, std::abs(exact.lse[i])))
            << what;
    }
  }
};

TEST_P(AttentionGpu, RandomShapes) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Rng rng(seed + 900);
    check(random_attention(rng), rng, seed % 3 == 0 ? integer(rng, 1, 8) : 0);
  }
}

TEST_P(AttentionGpu, EveryHeadDimension) {
  Rng rng(11);
  for (int64_t d : {3, 8, 16, 24, 32, 40, 64, 72, 80, 96, 104, 128})
    for (bool causal : {true, false})
      check({2,
             4,
             2,
             150,
             261,
             d,
             {.scale = 1 / std::sqrt(double(d)), .causal = causal, .causal_offset = causal ? 111 : 0}},
            rng, 0);
}

TEST_P(AttentionGpu, TileEdges) {
  Rng rng(12);
  for (int64_t n : {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 257})
    for (int64_t d : {64, 128}) check({1, 2, 1, n, n, d, {.scale = 0.1, .causal = true}}, rng, 0);
}

// More blocks than multiprocessors: the persistent loop, and its counter.
TEST_P(AttentionGpu, ManyHeads) {
  Rng rng(13);
  check({5, 40, 8, 200, 200, 32, {.scale = 0.2, .causal = true}}, rng, 0);
}

TEST_P(AttentionGpu, LongRows) {
  Rng rng(14);
  check({1, 1, 1, 300, 5000, 64, {.scale = 0.125, .causal = true, .causal_offset = 4700}}, rng, 0);
  check({1, 1, 1, 5000, 300, 64, {.scale = 0.125, .causal = true, .causal_offset = -2000}}, rng, 0);
  check({1, 2, 1, 1500, 1500, 80, {.scale = 0.11, .causal = true}}, rng, 0);
  check({1, 1, 1, 70, 20000, 64, {.scale = 0.125}}, rng, 0);
}

TEST_P(AttentionGpu, LargeScores) {
  Rng rng(15);
  AttentionShape s{
      1, 2, 2, 200, 200, 64, {.scale = 2, .causal = true}};  // scores of thousands, gradients that fp16 can hold
  s.attrs.kernel = GetParam().kernel;
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    AttentionResults r = by_the_op(s, on_device(random_inputs(s, rng, type, 8), cuda));
    for (const Values* values : {&r.o, &r.dq, &r.dk, &r.dv, &r.lse})
      for (double value : *values) ASSERT_TRUE(std::isfinite(value)) << name_of(type);
  }
}

TEST_P(AttentionGpu, RowsThatSeeNothing) {
  Rng rng(16);
  check({2, 2, 1, 300, 40, 64, {.scale = 0.3, .causal = true, .causal_offset = -170}}, rng, 0);
  check({1, 2, 2, 100, 100, 128, {.scale = 0.3, .causal = true, .causal_offset = -200}}, rng, 0);
}

std::vector<Tensor> results_on_host(const AttentionShape& s, const AttentionInputs& x) {
  for (const Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t), zero_grad(*t);
  Tensor lse, o = attention(x.q, x.k, x.v, s.attrs, &lse);
  backward(o, x.grad);
  std::vector<Tensor> host;
  for (const Tensor& t : {o, lse, grad_of(x.k), grad_of(x.v), grad_of(x.q)})
    host.push_back(to(t.detach(), DeviceType::cpu));
  return host;
}

// Also with SINTER_REPEATS=1000, in a build with -DSINTER_INJECT_DELAYS, where threads meet early or late at random.
TEST_P(AttentionGpu, SameBitsEveryTime) {
  const char* wanted = std::getenv("SINTER_REPEATS");
  int repeats = wanted ? std::atoi(wanted) : 20;
  Rng rng(17);
  for (int64_t d : {32, 64, 80, 128})
    for (bool causal : {true, false})
      for (bool deterministic : {false, true}) {
        AttentionShape s{2, 4, 2, 700, 800, d, {.scale = 0.12, .causal = causal, .causal_offset = causal ? 100 : 0}};
        s.attrs.kernel = GetParam().kernel, s.attrs.deterministic = deterministic;
        AttentionInputs x = on_device(random_inputs(s, rng, DType::bf16), cuda);
        std::vector<Tensor> first = results_on_host(s, x);
        int different = 0;
        for (int i = 0; i < repeats; ++i) {
          std::vector<Tensor> again = results_on_host(s, x);
          bool same = true;
          for (size_t j = 0; j < (deterministic ? 5 : 4); ++j) same = same && same_bits(again[j], first[j]);
          different += !same;
        }
        EXPECT_EQ(different, 0) << s.text() << (deterministic ? " deterministic" : "");
      }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionGpu, testing::ValuesIn(variants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionRefusalsGpu, SayWhy) {
  SINTER_REQUIRE_GPU();
  Tensor q = zeros({1, 1, 8, 160}, DType::bf16, cuda), wide = zeros({1, 1, 8, 8}, DType::f64, cuda);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { attention(q, q, q, {}); }), {"attention", "128", "160"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { attention(wide, wide, wide, {}); }), {"attention", "fp64"}));
  Tensor small = zeros({1, 1, 8, 8}, DType::bf16, cuda);
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [&] { attention(small, small, small, {.kernel = AttentionKernel::tiled}); }),
               {"CPU"}));
}

}  // namespace
}  // namespace sinter
