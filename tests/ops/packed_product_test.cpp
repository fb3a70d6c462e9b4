// The CPU's own GEMM: the same numbers as OpenBLAS's, in any layout, the same bits with any number of threads.
// CTest's `old_openblas` runs the tests of all ops with it (layouts with NaN between rows, gradients).
#include "ops/dispatch.h"
#include "ops/table.h"
#include "support/products.h"
#include "support/threads.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Shape {
  int64_t m, n, k;
};

// Around the edges of tiles, panels, cuts of k (512) and rounds (2048); a group of shared panels has at
// most 64. Those with 64 or more in every direction and 2^22 terms are shared out in panels where threads
// are few, the others in blocks.
constexpr Shape edges[] = {{16, 16, 1},     {28, 32, 16},    {29, 33, 17},      {27, 31, 15},    {28, 64, 512},
                           {29, 65, 513},   {100, 40, 2048}, {40, 100, 2049},   {45, 47, 4300},  {1000, 1100, 70},
                           {464, 464, 300}, {928, 928, 300}, {1000, 1100, 600}, {127, 300, 513}, {300, 100, 2048},
                           {70, 300, 2049}, {300, 65, 4300}};

struct Product {
  Tensor a, b;
  MatmulAttrs attrs;

  Product(const Shape& s, Rng& rng, DType type = DType::f32) {
    attrs.transpose_a = integer(rng, 0, 2), attrs.transpose_b = integer(rng, 0, 2);
    a = random_tensor(rng, attrs.transpose_a ? Dims{s.k, s.m} : Dims{s.m, s.k}, type);
    b = random_tensor(rng, attrs.transpose_b ? Dims{s.n, s.k} : Dims{s.k, s.n}, type);
  }
  Tensor operator()(const Destination* into = nullptr) const {
    const Tensor* in[] = {&a, &b};
    return dispatch_op(ops::matmul, in, Attrs::of(attrs), into)[0];
  }
  Tensor exact() const {
    return matmul(cast(a, DType::f64), cast(b, DType::f64), attrs.transpose_a, attrs.transpose_b);
  }
};

TEST(PackedProduct, IsTheProduct) {
  ProductsBy ours(cpu::Products::packed);
  Rng rng(11);
  std::vector<Shape> shapes(std::begin(edges), std::end(edges));
  for (int i = 0; i < 60; ++i) shapes.push_back({integer(rng, 16, 200), integer(rng, 16, 200), integer(rng, 1, 700)});
  for (const Shape& s : shapes) {
    SCOPED_TRACE(testing::Message() << s.m << " × " << s.n << " × " << s.k);
    Product p(s, rng);
    EXPECT_LT(normwise_error(to_vector(p()), to_vector(p.exact())), 2e-6);

    Tensor to = random_tensor(rng, {s.m, s.n}, DType::f32);
    Values expected = to_vector(to), product = to_vector(p.exact());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += product[i];
    Destination into;
    into.out[0] = &to, into.accumulate = 1;
    p(&into);
    EXPECT_LT(normwise_error(to_vector(to), expected), 2e-6) << "added";
  }
}

TEST(PackedProduct, HasTheSameBitsWithAnyNumberOfThreads) {
  ProductsBy ours(cpu::Products::packed);
  Rng rng(12);
  for (const Shape& s : edges) {
    Product p(s, rng);
    Tensor one = [&] {
      Threads t(1);
      return p();
    }();
    for (int n : {2, 3, 7, 16}) {
      Threads t(n);
      EXPECT_TRUE(same_bits(p(), one)) << s.m << " × " << s.n << " × " << s.k << ", " << n << " threads";
    }
  }
}

TEST(PackedProduct, OfBatchesIsThatOfEach) {
  ProductsBy ours(cpu::Products::packed);
  Rng rng(15);
  for (const Shape& s : {Shape{16, 16, 1}, {17, 33, 19}, {150, 170, 600}}) {
    // The heads of a (B, T, H, D) tensor: no single stride between batches.
    Tensor a = transpose(random_tensor(rng, {2, s.m, 3, s.k}, DType::f32), 1, 2);
    Tensor b = transpose(random_tensor(rng, {2, s.n, 3, s.k}, DType::f32), 1, 2);
    Tensor all = matmul(a, b, false, true);
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        auto one = [&](const Tensor& t) {
          Tensor matrix = slice(slice(t, 0, i, 1), 1, j, 1);
          return reshape(contiguous(matrix), {matrix.size(2), matrix.size(3)});
        };
        EXPECT_TRUE(same_bits(one(all), matmul(one(a), one(b), false, true))) << s.m << " × " << s.n << " × " << s.k;
      }
  }
}

// Large GEMMs of 16-bit matrices are those of the widened ones, rounded once.
TEST(PackedProduct, WidensSixteenBits) {
  Rng rng(13);
  for (DType type : {DType::f16, DType::bf16}) {
    Product p({130, 300, 150}, rng, type), wide = p;
    wide.a = cast(p.a, DType::f32), wide.b = cast(p.b, DType::f32);
    EXPECT_TRUE(same_bits(p(), cast(wide(), type))) << name_of(type);
    Tensor sum = random_tensor(rng, {130, 300}, DType::f32), wide_sum = copy(sum);
    Destination into, wide_into;
    into.out[0] = &sum, wide_into.out[0] = &wide_sum, into.accumulate = wide_into.accumulate = 1;
    p(&into), wide(&wide_into);
    EXPECT_TRUE(same_bits(sum, wide_sum)) << name_of(type);
  }
}

TEST(PackedProduct, LeavesDoublesToOpenBlas) {
  Rng rng(16);
  Product p({130, 300, 150}, rng, DType::f64);
  Tensor by_rule = p();
  ProductsBy openblas(cpu::Products::openblas);
  EXPECT_TRUE(same_bits(by_rule, p()));
}

TEST(PackedProduct, IsZeroWithoutTermsAndNothingWithoutRows) {
  ProductsBy ours(cpu::Products::packed);
  Rng rng(14);
  Product none({3, 5, 0}, rng), empty({0, 5, 4}, rng);
  for (double x : to_vector(none())) EXPECT_EQ(x, 0);
  EXPECT_EQ(empty().numel(), 0);
}

}  // namespace
}  // namespace sinter
