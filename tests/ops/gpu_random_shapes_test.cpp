// GPU kernels on shapes nobody chose: odd sizes, one row, many rows, views that begin anywhere.
#include <algorithm>
#include <cmath>

#include "support/gpu.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

constexpr DeviceType cuda = DeviceType::cuda;

class RandomShapesGpu : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { SINTER_REQUIRE_GPU(); }

  Rng rng{uint64_t(GetParam())};
  DType type = std::vector<DType>{DType::f32, DType::bf16, DType::f16}[size_t(GetParam() % 3)];

  // Sizes of all scales; often just around a power of two, where tiles end.
  int64_t size(int64_t most) {
    if (integer(rng, 0, 3) == 0) return std::min(most, (int64_t(1) << integer(rng, 0, 12)) + integer(rng, 0, 3));
    return std::max<int64_t>(1, int64_t(std::exp(uniform(rng, 0, std::log(double(most))))));
  }
  // A tensor on the CPU and the same on the GPU, there as a view of something larger half of the time.
  struct Pair {
    Tensor cpu, gpu;
  };
  Pair make(const Dims& dims) {
    Pair p{random_tensor(rng, dims, type), {}};
    auto layouts = layouts_for(dims.rank());
    p.gpu = to(p.cpu, cuda);
    if (!layouts.empty() && integer(rng, 0, 2))
      p.gpu = with_layout(p.gpu, layouts[size_t(integer(rng, 0, int64_t(layouts.size())))]);
    return p;
  }
  static Tensor wide(const Tensor& t) { return as_f64({t})[0]; }
  void expect(const char* what, const Tensor& actual, const Tensor& exact) {
    EXPECT_TRUE(near(actual, exact, 1.01 * roundoff(actual.dtype()), 2e-5))
        << what << " " << exact.dims().str() << " " << name_of(type);
  }
};

TEST_P(RandomShapesGpu, Products) {
  int64_t m = size(600), n = size(600), k = size(600), batch = integer(rng, 1, 4);
  bool ta = integer(rng, 0, 2), tb = integer(rng, 0, 2);
  Pair a = make(ta ? Dims{batch, 2, k, m} : Dims{batch, 2, m, k}),
       b = make(tb ? Dims{batch, 2, n, k} : Dims{batch, 2, k, n});
  expect("matmul", matmul(a.gpu, b.gpu, ta, tb), matmul(wide(a.cpu), wide(b.cpu), ta, tb));
  Pair x = make({batch, m, k}), w = make({n, k});
  expect("linear", linear(x.gpu, w.gpu), linear(wide(x.cpu), wide(w.cpu)));
}

TEST_P(RandomShapesGpu, Rows) {
  int64_t rows = size(9000), d = std::min<int64_t>(size(9000), 4000000 / rows);
  Pair x = make({rows, d}), w = make({d}), b = make({d});
  expect("rms_norm", rms_norm(x.gpu, w.gpu), rms_norm(wide(x.cpu), wide(w.cpu)));
  if (d >= 8)  // fewer may lie so close together that their variance is all rounding
    expect("layer_norm", layer_norm(x.gpu, w.gpu, b.gpu), layer_norm(wide(x.cpu), wide(w.cpu), wide(b.cpu)));
  expect("softmax", softmax(x.gpu, {0.7, false, 0}), softmax(wide(x.cpu), {0.7, false, 0}));
  int64_t offset = integer(rng, -3, 4);
  expect("causal softmax", softmax(x.gpu, {0.7, true, offset}), softmax(wide(x.cpu), {0.7, true, offset}));
  Tensor targets = empty({rows}, DType::i64, DeviceType::cpu);
  fill_integers(targets, 1, 1, 0, d);
  // One is added: a loss near zero is a difference of logits, and its error is measured against theirs.
  expect("cross_entropy", affine(cross_entropy(x.gpu, to(targets, cuda)), 1, 1),
         affine(cross_entropy(wide(x.cpu), targets), 1, 1));
  Pair g = make({rows, 2 * std::max<int64_t>(1, d / 2)});
  expect("swiglu", swiglu(g.gpu), swiglu(wide(g.cpu)));
}

TEST_P(RandomShapesGpu, Reductions) {
  Dims dims{size(60), size(60), size(60), size(20)};
  Pair x = make(dims);
  std::vector<int> over;
  for (int d = 0; d < 4; ++d)
    if (integer(rng, 0, 2)) over.push_back(d);
  Tensor actual = sum(x.gpu, over), exact = sum(wide(x.cpu), over);
  // Terms cancel: the error is measured against the size of a random sum, not against what is left of it.
  double terms = std::sqrt(double(x.cpu.numel()) / double(exact.numel()));
  Values a = to_vector(actual), e = to_vector(exact);
  ASSERT_EQ(actual.dims(), exact.dims());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], e[i], 1.01 * roundoff(type) * std::fabs(e[i]) + 5e-6 * terms)
        << dims.str() << " " << name_of(type);
}

TEST_P(RandomShapesGpu, PermutedCopiesAndBroadcasts) {
  Dims dims{size(20), size(30), size(40), size(50)};
  Pair x = make(dims);
  int a = int(integer(rng, 0, 4)), b = int(integer(rng, 0, 4));
  EXPECT_TRUE(same_bits(copy(transpose(x.gpu, a, b)), copy(transpose(x.cpu, a, b)))) << dims.str() << a << b;
  Tensor back = zeros(dims, type, cuda);
  copy_into(transpose(back, a, b), transpose(x.gpu, a, b));
  EXPECT_TRUE(same_bits(back, x.cpu));
  Dims other = dims;
  for (int d = 0; d < 4; ++d)
    if (integer(rng, 0, 2)) other[d] = 1;
  Pair y = make(other);
  expect("mul", mul(x.gpu, y.gpu), mul(wide(x.cpu), wide(y.cpu)));
  expect("join_heads", join_heads(x.gpu), join_heads(wide(x.cpu)));
}

TEST_P(RandomShapesGpu, EmbeddingAndHeads) {
  int64_t vocab = size(5000), d = size(300), B = integer(rng, 1, 4), T = size(200);
  Tensor ids = empty({B, T}, DType::i64, DeviceType::cpu);
  fill_integers(ids, 2, uint64_t(GetParam()), 0, vocab);
  Pair table = make({vocab, d});
  EXPECT_TRUE(same_bits(embedding(table.gpu, to(ids, cuda)), embedding(table.cpu, ids)));

  HeadsAttrs heads{integer(rng, 1, 5), integer(rng, 1, 5), true};
  int64_t D = 2 * size(64);
  Pair qkv = make({B, T, (heads.heads + 2 * heads.kv_heads) * D});
  Tensor c = random_tensor(rng, {T + 2, D / 2}, DType::f32), s = random_tensor(rng, {T + 2, D / 2}, DType::f32);
  Heads gpu = split_heads(qkv.gpu, to(c, cuda), to(s, cuda), heads),
        exact = split_heads(wide(qkv.cpu), wide(c), wide(s), heads);
  expect("q", gpu.q, exact.q);
  expect("k", gpu.k, exact.k);
  expect("v", gpu.v, exact.v);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomShapesGpu, testing::Range(0, 30));

// Elements at every offset from an aligned address: vector loads must notice.
TEST(UnalignedGpu, ViewsThatBeginAnywhere) {
  SINTER_REQUIRE_GPU();
  Rng rng(3);
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    Tensor base = random_tensor(rng, {5000}, type), on_gpu = to(base, cuda);
    for (int64_t offset = 0; offset < 9; ++offset)
      for (int64_t n : {1, 7, 64, 1000, 4097}) {
        auto at = [&](const Tensor& b) { return make_view(b, {n}, {1}, offset); };
        EXPECT_TRUE(near(affine(at(on_gpu), 2, 1), affine(at(base), 2, 1), roundoff(type), 0)) << offset << " " << n;
        EXPECT_TRUE(near(sum(at(on_gpu)), sum(at(base)), 2 * roundoff(type), 1e-5)) << offset << " " << n;
        Tensor target = zeros({5000}, type, cuda);
        copy_into(at(target), at(on_gpu));
        EXPECT_TRUE(same_bits(at(target), at(base)));
        Values v = to_vector(target);
        EXPECT_EQ(v[size_t(offset + n)], 0) << "nothing beyond the end is written";
        EXPECT_TRUE(offset == 0 || v[size_t(offset - 1)] == 0) << "nor before the beginning";
      }
  }
}

}  // namespace
}  // namespace sinter
