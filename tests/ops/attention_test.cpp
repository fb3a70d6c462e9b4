// Attention in blocks, by the fast kernel and tile by tile, against attention spelled out in float64: any shape,
// both masks, fewer key/value heads.
#include <cmath>

#include "autograd/tape.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "support/attention_reference.h"

namespace sinter {
namespace {

using Shape = AttentionShape;
using Inputs = AttentionInputs;
using Results = AttentionResults;

// Flash, and one tile size of tiled.
std::vector<Shape> kernels_for(const Shape& s, int seed) { return {s, s.tiled(16 << seed % 4)}; }
// Flash, and all tile sizes of tiled.
std::vector<Shape> all_kernels(const Shape& s) { return {s, s.tiled(16), s.tiled(32), s.tiled(64), s.tiled(128)}; }

class RandomAttention : public testing::TestWithParam<int> {};

TEST_P(RandomAttention, Fp32IsNearFp64) {
  Rng rng(uint64_t(GetParam()) + 100);
  Shape s = random_attention(rng);
  Inputs x = random_inputs(s, rng, DType::f32);
  Results exact = spelled_out(s, cast_to(x, DType::f64));
  for (const Shape& by : kernels_for(s, GetParam()))
    expect_close(by_the_op(by, cast_to(x, DType::f32)), exact, 1e-5, by.text());
}

TEST_P(RandomAttention, Fp64IsExact) {
  Rng rng(uint64_t(GetParam()) + 900);
  Shape s = random_attention(rng);
  Inputs x = random_inputs(s, rng, DType::f64);
  Results exact = spelled_out(s, x);
  for (const Shape& by : kernels_for(s, GetParam()))
    expect_close(by_the_op(by, cast_to(x, DType::f64)), exact, 1e-12, by.text());
}

TEST_P(RandomAttention, SixteenBitsAreNoWorseThanTwiceNaive) {
  Rng rng(uint64_t(GetParam()) + 500);
  Shape s = random_attention(rng);
  for (DType type : {DType::bf16, DType::f16}) {
    Inputs x = random_inputs(s, rng, type);
    Results exact = spelled_out(s, cast_to(x, DType::f64)), theirs = spelled_out(s, cast_to(x, type));
    for (const Shape& by : kernels_for(s, GetParam()))
      expect_fair(by_the_op(by, cast_to(x, type)), theirs, exact, by.text());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomAttention, testing::Range(0, 24));

TEST(Attention, BatchesOfHeadDimension80) {
  Rng rng(2);
  Shape s{3, 4, 2, 150, 150, 80, {1 / std::sqrt(80.0), true, 0}};
  Inputs x = random_inputs(s, rng, DType::f32);
  Results exact = spelled_out(s, cast_to(x, DType::f64));
  for (const Shape& by : all_kernels(s)) expect_close(by_the_op(by, cast_to(x, DType::f32)), exact, 1e-5, by.text());
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Rng rng(3);
  Shape s{1, 2, 2, 65, 130, 16, {30, true, 65}};
  Inputs x = random_inputs(s, rng, DType::f32, 8);
  Results exact = spelled_out(s, cast_to(x, DType::f64));
  for (const Shape& by : all_kernels(s)) {
    Results r = by_the_op(by, cast_to(x, DType::f32));
    for (const Values* v : {&r.o, &r.dq, &r.dk, &r.dv, &r.lse})
      for (double value : *v) ASSERT_TRUE(std::isfinite(value)) << by.text();
    // Nearly every row is decided by one key; the gradients of such scores are differences of nearly equal numbers.
    EXPECT_LE(error(r.o, exact.o), 2e-3) << "scores of some thousands, each rounded to fp32: " << by.text();
    EXPECT_LE(error(r.dv, exact.dv), 2e-3) << by.text();
  }
}

// Whatever the first scores are: a maximum that starts too high would lose them.
TEST(Attention, VeryNegativeScoresCount) {
  Rng rng(6);
  Shape s{1, 1, 1, 40, 200, 16, {1, true, 160}};
  Inputs x = random_inputs(s, rng, DType::f64);
  Values q = to_vector(x.q), k = to_vector(x.k);
  for (size_t i = 0; i < q.size(); i += 16) q[i] = 100;
  for (size_t i = 0; i < k.size(); i += 16) k[i] = -50;
  x.q = tensor_of(q, {1, 1, 40, 16}, DType::f64), x.k = tensor_of(k, {1, 1, 200, 16}, DType::f64);
  Results exact = spelled_out(s, x);
  for (const Shape& by : all_kernels(s)) expect_close(by_the_op(by, cast_to(x, DType::f64)), exact, 1e-10, by.text());
}

TEST(Attention, ARowThatSeesNothingGivesZero) {
  Rng rng(4);
  Shape s{2, 2, 1, 70, 40, 8, {0.3, true, -10}};
  Inputs x = random_inputs(s, rng, DType::f32);
  Results exact = spelled_out(s, cast_to(x, DType::f64));
  for (const Shape& by : all_kernels(s)) {
    Results r = by_the_op(by, cast_to(x, DType::f32));
    for (int64_t head = 0; head < 4; ++head)
      for (int64_t i = 0; i < 10; ++i) {
        size_t row = size_t(head * 70 + i);
        EXPECT_EQ(r.lse[row], -INFINITY);
        for (size_t d = 0; d < 8; ++d) {
          EXPECT_EQ(r.o[row * 8 + d], 0);
          EXPECT_EQ(r.dq[row * 8 + d], 0);
        }
      }
    expect_close(r, exact, 1e-5, by.text());
  }
}

// As q, k and v lie inside the merged projection, with NaN all around.
TEST(Attention, ReadsOnlyItsOwnRows) {
  Rng rng(5);
  Shape s{2, 3, 3, 33, 33, 8, {0.35, true, 0}};
  Inputs x = random_inputs(s, rng, DType::f32);
  for (const Shape& by : all_kernels(s)) {
    Results expected = by_the_op(by, cast_to(x, DType::f32));
    Tensor merged = full({2, 40, 5 * 3 * 8}, NAN, DType::f32, DeviceType::cpu);
    auto inside = [&](const Tensor& t, int64_t part) {
      Tensor view = make_view(merged, {2, 3, 33, 8}, {40 * 120, 8, 120, 1}, 3 * 120 + part * 24);
      copy_into(view, t.detach());
      return view.detach();
    };
    Inputs strided{inside(x.q, 0), inside(x.k, 1), inside(x.v, 3), x.grad};
    Results r = by_the_op(by, strided);
    EXPECT_EQ(r.o, expected.o) << by.text();
    EXPECT_EQ(r.dq, expected.dq) << by.text();
    EXPECT_EQ(r.dk, expected.dk) << by.text();
    EXPECT_EQ(r.dv, expected.dv) << by.text();
  }
}

// Every input of both directions lies in a larger tensor of NaN: before and behind each row, head and sequence.
TEST(Attention, NanAroundEveryInputNeverLeaks) {
  auto poisoned = [](const Tensor& t) {
    int64_t B = t.size(0), H = t.size(1), N = t.size(2), D = t.size(3), row = D + 7, head = (N + 3) * row,
            sequence = (H + 2) * head;
    Tensor all = full({B + 2, sequence}, NAN, t.dtype(), t.device());
    Tensor view = make_view(all, {B, H, N, D}, {sequence, head, row, 1}, sequence + head + row + 3);
    copy_into(view, t);
    return view.detach();
  };
  auto same = [](const Tensor& a, const Tensor& b) { return to_vector(a) == to_vector(b); };
  int seed = 0;
  for (DType type : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (int64_t D : {8, 20, 64, 80})
      for (bool causal : {false, true}) {
        Rng rng(uint64_t(++seed));
        Shape s{2, 4, 2, 75, 90, D, {0.3, causal, causal ? 15 : 0}};
        Inputs x = random_inputs(s, rng, type);
        for (const Shape& by : {s, s.tiled(16), s.tiled(64)}) {
          Tensor lse, o = attention(x.q, x.k, x.v, by.attrs, &lse);
          Outputs g = dispatch(ops::attention_backward, Attrs::of(by.attrs), x.q, x.k, x.v, o, lse, x.grad);
          Tensor q = poisoned(x.q), k = poisoned(x.k), v = poisoned(x.v), lse2,
                 o2 = attention(q, k, v, by.attrs, &lse2);
          Outputs g2 =
              dispatch(ops::attention_backward, Attrs::of(by.attrs), q, k, v, poisoned(o), lse, poisoned(x.grad));
          EXPECT_TRUE(same(o, o2) && same(lse, lse2)) << by.text();
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(g[i], g2[i])) << by.text() << " gradient " << i;
          for (double value : to_vector(o)) ASSERT_TRUE(std::isfinite(value));
        }
      }
}

TEST(Attention, RefusesAnImpossibleTileOrKernel) {
  Tensor q = zeros({1, 1, 4, 64}, DType::f32, DeviceType::cpu);
  auto message = [&](AttentionKernel kernel, int32_t tile) {
    AttentionAttrs a;
    a.kernel = kernel, a.tile = tile;
    return error_of(ErrorKind::usage, [&] { attention(q, q, q, a); });
  };
  EXPECT_TRUE(mentions(message(AttentionKernel::tiled, -1), {"tile", "-1"}));
  EXPECT_TRUE(mentions(message(AttentionKernel::tiled, 4096), {"4096", "74481664 bytes", "limit is 4194304"}));
  EXPECT_TRUE(mentions(message(AttentionKernel::portable, 0), {"portable", "GPU"}));
}

TEST(Attention, MemoryGrowsWithTheContextNotItsSquare) {
  auto peak_of = [](int64_t n) {
    CachingAllocator& a = allocator_of(DeviceType::meta);
    int64_t before = a.stats().allocated;
    a.reset_peak();
    Tensor q = empty({1, 2, n, 64}, DType::f32, DeviceType::meta),
           k = empty({1, 2, n, 64}, DType::f32, DeviceType::meta),
           v = empty({1, 2, n, 64}, DType::f32, DeviceType::meta);
    for (Tensor* t : {&q, &k, &v}) require_grad(*t);
    Tensor o = attention(q, k, v, {0.125, true, 0});
    backward(o, o.detach());
    return double(a.stats().peak_allocated - before);
  };
  EXPECT_NEAR(peak_of(65536) / peak_of(32768), 2, 0.05);
}

TEST(Attention, CountsFlopsInFullAndWhatRuns) {
  struct Counter : Interceptor {
    Cost sum;
    void called(const OpCall& c, TensorPtrs, const Outputs& o) override {
      if (!c.op.cost) return;
      Cost cost = c.op.cost(c, o);
      sum.matmul_flops += cost.matmul_flops;
      sum.other_flops += cost.executed();
    }
  } counter;
  Listening listening(counter);
  Tensor q = empty({2, 3, 100, 16}, DType::f32, DeviceType::meta);
  attention(q, q, q, {1, true, 0});
  EXPECT_EQ(counter.sum.matmul_flops, 4.0 * 6 * 100 * 100 * 16);
  EXPECT_EQ(counter.sum.other_flops, 4.0 * 6 * (100 * 101 / 2) * 16);
}

TEST(Attention, RefusesWhatDoesNotFitTogether) {
  auto tensor = [](Dims d, DType t = DType::f32) { return zeros(d, t, DeviceType::cpu); };
  auto refuses = [&](const Tensor& q, const Tensor& k, const Tensor& v, std::vector<std::string> words) {
    words.push_back("attention");
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { attention(q, k, v, {}); }), words));
  };
  Tensor q = tensor({1, 4, 5, 8});
  refuses(q, tensor({1, 3, 5, 8}), tensor({1, 3, 5, 8}), {"4 query heads", "3 key/value heads"});
  refuses(q, tensor({1, 4, 5, 6}), tensor({1, 4, 5, 6}), {"(1, 4, 5, 6)"});
  refuses(q, tensor({1, 4, 5, 8}), tensor({1, 4, 6, 8}), {"alike"});
  refuses(q, tensor({1, 4, 5, 8}, DType::bf16), tensor({1, 4, 5, 8}, DType::bf16), {"one type"});
}

}  // namespace
}  // namespace sinter
