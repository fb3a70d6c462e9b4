// The CPU's own product of large matrices: the same numbers as the plain one, in any layout, the same bits with any number of threads.
// Small samples of it are in the op table, so every test of all ops (layouts with NaN between rows, both instruction sets) covers it too.
#include "ops/dispatch.h"
#include "ops/table.h"
#include "support/threads.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Shape {
  int64_t m, n, k;
};

// Around the edges of tiles, panels, cuts of k (512) and rounds (2048); a group of shared panels has at most 64.
constexpr Shape edges[] = {{1, 1, 1},       {14, 32, 16},    {15, 33, 17},     {13, 31, 15},   {28, 64, 512},
                           {29, 65, 513},   {100, 40, 2048}, {40, 100, 2049},  {45, 47, 4300}, {1000, 1100, 70},
                           {464, 464, 300}, {928, 928, 300}, {1000, 1100, 600}};

struct Product {
  Tensor a, b;
  MatmulAttrs attrs;

  Product(const Shape& s, Rng& rng, DType type = DType::f32) {
    attrs.packed = true;
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
  Rng rng(11);
  std::vector<Shape> shapes(std::begin(edges), std::end(edges));
  for (int i = 0; i < 60; ++i) shapes.push_back({integer(rng, 1, 200), integer(rng, 1, 200), integer(rng, 1, 700)});
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

// What it does not know goes where all other products go.
TEST(PackedProduct, LeavesOtherTypesAlone) {
  Rng rng(13);
  for (DType type : {DType::f64, DType::bf16}) {
    Product p({20, 40, 60}, rng, type);
    Tensor packed = p();
    p.attrs.packed = false;
    EXPECT_TRUE(same_bits(packed, p())) << name_of(type);
  }
}

TEST(PackedProduct, IsZeroWithoutTermsAndNothingWithoutRows) {
  Rng rng(14);
  Product none({3, 5, 0}, rng), empty({0, 5, 4}, rng);
  for (double x : to_vector(none())) EXPECT_EQ(x, 0);
  EXPECT_EQ(empty().numel(), 0);
}

}  // namespace
}  // namespace sinter
