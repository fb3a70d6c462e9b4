// Attention in blocks against attention spelled out in float64: any shape, both masks, fewer key/value heads.
#include <cmath>

#include "autograd/tape.h"
#include "ops/ops.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Shape {
  int64_t B, H, Hkv, Nq, Nk, D;
  AttentionAttrs attrs;
  std::string text() const {
    return fmt::format("B {} H {}/{} Nq {} Nk {} D {} {} offset {}", B, H, Hkv, Nq, Nk, D,
                       attrs.causal ? "causal" : "full", attrs.causal_offset);
  }
};

Shape random_shape(Rng& rng) {
  Shape s;
  s.B = integer(rng, 1, 3), s.Hkv = integer(rng, 1, 3), s.H = s.Hkv * integer(rng, 1, 4);
  s.Nq = integer(rng, 1, 3) == 1 ? integer(rng, 1, 9) : integer(rng, 1, 300);
  s.Nk = integer(rng, 0, 2) ? s.Nq : integer(rng, 1, 600);
  s.D = integer(rng, 1, 97);
  s.attrs.scale = 1 / std::sqrt(double(s.D));
  s.attrs.causal = integer(rng, 0, 3) > 0;
  if (s.attrs.causal && integer(rng, 0, 2))
    s.attrs.causal_offset = integer(rng, 0, 2) ? s.Nk - s.Nq : integer(rng, -20, 20);
  return s;
}

struct Inputs {
  Tensor q, k, v, grad;
};
Inputs random_inputs(const Shape& s, Rng& rng, DType type, double size = 1) {
  auto tensor = [&](int64_t heads, int64_t n) {
    Values x = normals(rng, s.B * heads * n * s.D);
    for (double& value : x) value *= size;
    return tensor_of(x, {s.B, heads, n, s.D}, type);
  };
  return {tensor(s.H, s.Nq), tensor(s.Hkv, s.Nk), tensor(s.Hkv, s.Nk), tensor(s.H, s.Nq)};
}
Inputs cast_to(const Inputs& x, DType type) {
  return {cast(x.q, type).detach(), cast(x.k, type).detach(), cast(x.v, type).detach(), cast(x.grad, type).detach()};
}

struct Results {
  Values o, lse, dq, dk, dv;
};

Tensor repeat_heads(const Tensor& x, int64_t group) {
  if (group == 1) return x;
  int64_t B = x.size(0), H = x.size(1), N = x.size(2), D = x.size(3);
  return reshape(contiguous(expand(reshape(x, {B, H, 1, N, D}), {B, H, group, N, D})), {B, H * group, N, D});
}

Results naive(const Shape& s, const Inputs& x) {
  for (const Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t);
  int64_t group = s.H / s.Hkv;
  Tensor scores = matmul(x.q, repeat_heads(x.k, group), false, true);
  Tensor p = softmax(scores, {s.attrs.scale, s.attrs.causal, s.attrs.causal_offset});
  Tensor o = matmul(p, repeat_heads(x.v, group));
  backward(o, x.grad);
  Results r{to_vector(o), {}, to_vector(grad_of(x.q)), to_vector(grad_of(x.k)), to_vector(grad_of(x.v))};
  Values all = to_vector(scores);
  for (int64_t row = 0; row < s.B * s.H * s.Nq; ++row) {
    int64_t n = s.attrs.causal ? std::clamp<int64_t>(row % s.Nq + s.attrs.causal_offset + 1, 0, s.Nk) : s.Nk;
    double m = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; ++j) m = std::max(m, s.attrs.scale * all[size_t(row * s.Nk + j)]);
    for (int64_t j = 0; j < n; ++j) sum += std::exp(s.attrs.scale * all[size_t(row * s.Nk + j)] - m);
    r.lse.push_back(n ? m + std::log(sum) : -INFINITY);
  }
  return r;
}

Results flash(const Shape& s, const Inputs& x) {
  for (const Tensor* t : {&x.q, &x.k, &x.v}) require_grad(*t);
  Tensor lse, o = attention(x.q, x.k, x.v, s.attrs, &lse);
  backward(o, x.grad);
  return {to_vector(o), to_vector(lse), to_vector(grad_of(x.q)), to_vector(grad_of(x.k)), to_vector(grad_of(x.v))};
}

double error(const Values& a, const Values& e) { return norm(e) > 0 ? normwise_error(a, e) : norm(a); }
double largest_error(const Values& a, const Values& e) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    most = std::max(most, std::abs(a[i] - e[i]));
  }
  return most;
}

void expect_close(const Results& a, const Results& e, double bound, const std::string& what) {
  EXPECT_LE(error(a.o, e.o), bound) << what;
  EXPECT_LE(error(a.dq, e.dq), bound) << what;
  EXPECT_LE(error(a.dk, e.dk), bound) << what;
  EXPECT_LE(error(a.dv, e.dv), bound) << what;
  ASSERT_EQ(a.lse.size(), e.lse.size());
  for (size_t i = 0; i < a.lse.size(); ++i) {
    if (std::isinf(e.lse[i])) {
      EXPECT_EQ(a.lse[i], e.lse[i]) << what;
    } else {
      EXPECT_NEAR(a.lse[i], e.lse[i], 1e-5) << what;
    }
  }
}

class RandomAttention : public testing::TestWithParam<int> {};

TEST_P(RandomAttention, Fp32IsNearFp64) {
  Rng rng(uint64_t(GetParam()) + 100);
  Shape s = random_shape(rng);
  Inputs x = random_inputs(s, rng, DType::f32);
  expect_close(flash(s, x), naive(s, cast_to(x, DType::f64)), 1e-5, s.text());
}

TEST_P(RandomAttention, SixteenBitsAreNoWorseThanTwiceNaive) {
  Rng rng(uint64_t(GetParam()) + 500);
  Shape s = random_shape(rng);
  for (DType type : {DType::bf16, DType::f16}) {
    Inputs x = random_inputs(s, rng, type);
    Results exact = naive(s, cast_to(x, DType::f64)), ours = flash(s, x), theirs = naive(s, cast_to(x, type));
    auto fair = [&](const Values& a, const Values& b, const Values& e) {
      return largest_error(a, e) <= 2 * largest_error(b, e) + 1e-5;
    };
    EXPECT_TRUE(fair(ours.o, theirs.o, exact.o)) << s.text();
    EXPECT_TRUE(fair(ours.dq, theirs.dq, exact.dq)) << s.text();
    EXPECT_TRUE(fair(ours.dk, theirs.dk, exact.dk)) << s.text();
    EXPECT_TRUE(fair(ours.dv, theirs.dv, exact.dv)) << s.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomAttention, testing::Range(0, 24));

TEST(Attention, LargeScoresDoNotOverflow) {
  Rng rng(3);
  Shape s{1, 2, 2, 65, 130, 16, {30, true, 65}};
  Inputs x = random_inputs(s, rng, DType::f32, 8);
  Results r = flash(s, x);
  for (const Values* v : {&r.o, &r.dq, &r.dk, &r.dv, &r.lse})
    for (double value : *v) ASSERT_TRUE(std::isfinite(value));
  // Nearly every row is decided by one key; the gradients of such scores are differences of nearly equal numbers.
  Results exact = naive(s, cast_to(x, DType::f64));
  EXPECT_LE(error(r.o, exact.o), 2e-3) << "scores of some thousands, each rounded to fp32";
  EXPECT_LE(error(r.dv, exact.dv), 2e-3);
}

TEST(Attention, ARowThatSeesNothingGivesZero) {
  Rng rng(4);
  Shape s{2, 2, 1, 70, 40, 8, {0.3, true, -10}};
  Inputs x = random_inputs(s, rng, DType::f32);
  Results r = flash(s, x);
  for (int64_t head = 0; head < 4; ++head)
    for (int64_t i = 0; i < 10; ++i) {
      size_t row = size_t(head * 70 + i);
      EXPECT_EQ(r.lse[row], -INFINITY);
      for (size_t d = 0; d < 8; ++d) {
        EXPECT_EQ(r.o[row * 8 + d], 0);
        EXPECT_EQ(r.dq[row * 8 + d], 0);
      }
    }
  expect_close(r, naive(s, cast_to(x, DType::f64)), 1e-5, s.text());
}

// As q, k and v lie inside the merged projection, with NaN all around.
TEST(Attention, ReadsOnlyItsOwnRows) {
  Rng rng(5);
  Shape s{2, 3, 3, 33, 33, 8, {0.35, true, 0}};
  Inputs x = random_inputs(s, rng, DType::f32);
  Results expected = flash(s, x);
  Tensor merged = full({2, 40, 5 * 3 * 8}, NAN, DType::f32, DeviceType::cpu);
  auto inside = [&](const Tensor& t, int64_t part) {
    Tensor view = make_view(merged, {2, 3, 33, 8}, {40 * 120, 8, 120, 1}, 3 * 120 + part * 24);
    copy_into(view, t.detach());
    return view.detach();
  };
  Inputs strided{inside(x.q, 0), inside(x.k, 1), inside(x.v, 3), x.grad};
  Results r = flash(s, strided);
  EXPECT_EQ(r.o, expected.o);
  EXPECT_EQ(r.dq, expected.dq);
  EXPECT_EQ(r.dk, expected.dk);
  EXPECT_EQ(r.dv, expected.dv);
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
