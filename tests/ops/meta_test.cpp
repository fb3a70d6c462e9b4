// The meta device computes nothing, but shapes, types, strides and memory are those of the real one.
#include "support/op_cases.h"

namespace sinter {
namespace {

class OpMeta : public testing::TestWithParam<OpCase> {};

Tensor meta_like(const Tensor& t) {
  Tensor base = empty_strided(t.dims(), t.strides(), t.dtype(), DeviceType::meta);
  return base;
}

void expect_same_outputs(const OpCase& c, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> meta;
  for (const Tensor& t : inputs) meta.push_back(meta_like(t));
  Outputs real = call(c, inputs), predicted = call(c, meta);
  ASSERT_EQ(real.n, predicted.n);
  for (int j = 0; j < real.n; ++j) {
    EXPECT_EQ(real[j].dims(), predicted[j].dims()) << "output " << j;
    EXPECT_EQ(real[j].strides(), predicted[j].strides()) << "output " << j;
    EXPECT_EQ(real[j].dtype(), predicted[j].dtype()) << "output " << j;
    EXPECT_EQ(predicted[j].device(), DeviceType::meta);
  }
}

TEST_P(OpMeta, SameShapesTypesStrides) {
  const OpCase& c = GetParam();
  for (DType type : {DType::f64, DType::f32, DType::bf16}) expect_same_outputs(c, make_inputs(c, type));
}

TEST_P(OpMeta, SameWithStridedInputs) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f32);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (Layout layout : layouts_for(inputs[i].rank())) {
      std::vector<Tensor> strided = inputs;
      strided[i] = with_layout(inputs[i], layout);
      expect_same_outputs(c, strided);
    }
}

TEST_P(OpMeta, SameUnderAutocast) {
  const OpCase& c = GetParam();
  Autocast mixed(DType::bf16);
  expect_same_outputs(c, make_inputs(c, DType::f32));
}

// Same block sizes, same moments: the peak of a call is predicted to the byte.
TEST_P(OpMeta, SamePeakMemory) {
  const OpCase& c = GetParam();
  auto peak_of = [&](DeviceType device) {
    std::vector<Tensor> inputs;
    for (const Tensor& t : make_inputs(c, DType::bf16)) inputs.push_back(to(t, device));
    CachingAllocator& a = allocator_of(device);
    int64_t before = a.stats().allocated;
    a.reset_peak();
    Outputs out = call(c, inputs);
    return a.stats().peak_allocated - before;
  };
  EXPECT_EQ(peak_of(DeviceType::cpu), peak_of(DeviceType::meta));
}

INSTANTIATE_TEST_SUITE_P(Table, OpMeta, testing::ValuesIn(sample_cases()), case_name);

TEST(Meta, RefusesToGiveValues) {
  Tensor t = zeros({2}, DType::f32, DeviceType::meta);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { to_vector(t); }), {"meta"}));
}

}  // namespace
}  // namespace sinter
