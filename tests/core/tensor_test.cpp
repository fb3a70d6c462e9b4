// Types, sizes and views.
#include "core/half.h"
#include "support/values.h"

namespace sinter {
namespace {

TEST(DTypes, Promote) {
  EXPECT_EQ(promote(DType::f32, DType::bf16), DType::f32);
  EXPECT_EQ(promote(DType::bf16, DType::f16), DType::f32);
  EXPECT_EQ(promote(DType::f16, DType::f16), DType::f16);
  EXPECT_EQ(promote(DType::f64, DType::f32), DType::f64);
  EXPECT_EQ(promote(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(promote(DType::i64, DType::i32), DType::i64);
  EXPECT_EQ(promote(DType::u8, DType::boolean), DType::u8);
  for (int a = 0; a < dtype_count; ++a)
    for (int b = 0; b < dtype_count; ++b) EXPECT_EQ(promote(DType(a), DType(b)), promote(DType(b), DType(a)));
}

TEST(DTypes, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::boolean), 1);
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
  EXPECT_STREQ(name_of(DType::i64), "int64");
}

TEST(Half, EveryBf16AndFp16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float a = to_float(bf16{uint16_t(bits)}), b = to_float(f16{uint16_t(bits)});
    ASSERT_TRUE(a != a || to_bf16(a).bits == bits) << bits;
    ASSERT_TRUE(b != b || to_f16(b).bits == bits) << bits;
    ASSERT_TRUE(a == a || to_float(to_bf16(a)) != to_float(to_bf16(a))) << "NaN stays NaN";
  }
}

TEST(Half, TiesGoToEven) {
  EXPECT_EQ(to_float(to_bf16(1 + 0x1p-8f)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(1 + 0x1.8p-7f)), 1 + 0x1p-6f);
  EXPECT_EQ(to_float(to_f16(1 + 0x1p-11f)), 1.0f);
  EXPECT_EQ(to_float(to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(to_f16(0x1.8p-25f)), 0x1p-24f);
}

TEST(DimsList, Basics) {
  Dims d{2, 3, 4};
  EXPECT_EQ(d.numel(), 24);
  EXPECT_EQ(Dims{}.numel(), 1);
  EXPECT_EQ((Dims{2, 0, 4}).numel(), 0);
  EXPECT_EQ(d.str(), "(2, 3, 4)");
  EXPECT_EQ(d.without_last(), (Dims{2, 3}));
  EXPECT_EQ(d.with_last(9), (Dims{2, 3, 9}));
  EXPECT_FALSE((d == Dims{2, 3}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { Dims{1, 1, 1, 1, 1, 1, 1}; }), {"6 dimensions", "7"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [] {
                                  Dims six{1, 1, 1, 1, 1, 1};
                                  six.push_back(1);
                                }),
                       {"6 dimensions"}));
}

TEST(Views, ShareMemory) {
  Tensor x = tensor_of({0, 1, 2, 3, 4, 5}, {2, 3}, DType::f64);
  Tensor t = transpose(x, 0, 1), s = slice(x, 1, 1, 2), r = reshape(x, {3, -1});
  EXPECT_TRUE(t.same_storage(x) && s.same_storage(x) && r.same_storage(x));
  EXPECT_EQ(to_vector(t), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(to_vector(s), (Values{1, 2, 4, 5}));
  EXPECT_EQ(r.dims(), (Dims{3, 2}));
  fill(s, 7);
  EXPECT_EQ(to_vector(x), (Values{0, 7, 7, 3, 7, 7}));
}

TEST(Views, ReshapeCopiesOnlyIfItMust) {
  Tensor x = tensor_of(Values(24, 1.0), {2, 3, 4}, DType::f32);
  EXPECT_TRUE(reshape(x, {6, 4}).same_storage(x));
  EXPECT_TRUE(reshape(transpose(x, 0, 1), {3, 2, 2, 2}).same_storage(x)) << "splitting a dimension needs no copy";
  EXPECT_FALSE(reshape(transpose(x, 1, 2), {24}).same_storage(x));
  EXPECT_TRUE(reshape(slice(x, 2, 0, 2), {6, 2}).same_storage(x)) << "padded rows fold";
  EXPECT_FALSE(reshape(slice(x, 1, 0, 2), {4, 4}).same_storage(x));
}

// Whatever the strides, a reshaped tensor holds the same numbers in the same order.
TEST(Views, ReshapeKeepsTheOrderOfElements) {
  Rng rng(11);
  for (int round = 0; round < 300; ++round) {
    Dims dims;
    for (int d = 0, r = int(integer(rng, 1, 5)); d < r; ++d) dims.push_back(integer(rng, 1, 5));
    auto layouts = layouts_for(dims.rank());
    Tensor x = random_tensor(rng, dims, DType::f64);
    Tensor view = with_layout(x, layouts[size_t(integer(rng, 0, int64_t(layouts.size())))]);
    int64_t rest = dims.numel();
    Dims to;
    while (rest > 1 && to.rank() < 4) {
      int64_t f = integer(rng, 1, rest + 1);
      while (rest % f) --f;
      to.push_back(f);
      rest /= f;
    }
    to.push_back(rest);
    Tensor y = reshape(view, to);
    ASSERT_EQ(y.dims(), to);
    ASSERT_EQ(to_vector(y), to_vector(x)) << dims.str() << " as " << to.str();
  }
}

TEST(Views, ContiguousOrNot) {
  Tensor x = tensor_of(Values(6, 0.0), {2, 3}, DType::f32);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_FALSE(transpose(x, 0, 1).is_contiguous());
  EXPECT_TRUE(slice(x, 0, 1, 1).is_contiguous());
  EXPECT_FALSE(slice(x, 1, 0, 2).is_contiguous());
  EXPECT_TRUE(slice(x, 1, 0, 1).dims() == (Dims{2, 1}));
  EXPECT_TRUE(contiguous(x).same_storage(x));
  EXPECT_FALSE(copy(x).same_storage(x));
}

TEST(Views, SizesFromTheEnd) {
  Tensor x = tensor_of(Values(6, 0.0), {2, 3}, DType::f32);
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_EQ(x.size(-2), 2);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { x.size(2); }), {"dimension 2", "(2, 3)"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { x.size(-3); }), {"dimension -3", "(2, 3)"}));
}

TEST(Views, EmptyTensorsWork) {
  Tensor x = empty({0, 3}, DType::f32, DeviceType::cpu);
  EXPECT_EQ(to_vector(add(x, x)).size(), 0u);
  EXPECT_EQ(item(sum(x)), 0);
  EXPECT_EQ(to_vector(sum(x, {0})), (Values{0, 0, 0}));
}

TEST(Versions, InPlaceWritesAreCounted) {
  Tensor x = zeros({3}, DType::f32, DeviceType::cpu), view = slice(x, 0, 0, 1);
  uint32_t before = x.impl().storage->version;
  fill(view, 1);
  EXPECT_GT(x.impl().storage->version, before) << "a write through a view counts for the whole storage";
}

}  // namespace
}  // namespace sinter
