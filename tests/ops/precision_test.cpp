// fp32, bf16 and fp16 kernels against float64 on the very same values: what may differ is one rounding of the result
// and the fp32 arithmetic inside.
#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

constexpr double inside = 1e-5;  // of the largest element: fp32 sums, fast exponentials

void expect_near_f64(const OpCase& c, DType type) {
  SCOPED_TRACE(name_of(type));
  std::vector<Tensor> inputs = make_inputs(c, type);
  Outputs exact = call(c, as_f64(inputs)), out = call(c, inputs);
  for (int j = 0; j < out.n; ++j) {
    bool own_type = c.op == &ops::cast || c.op == &ops::sum_squares;
    EXPECT_TRUE(own_type || out[j].dtype() == type || out[j].dtype() == DType::f32) << "output " << j;
    EXPECT_TRUE(near(out[j], exact[j], 1.01 * roundoff(out[j].dtype()), inside)) << "output " << j;
  }
}

class OpPrecision : public testing::TestWithParam<OpCase> {};

TEST_P(OpPrecision, Fp32NearFloat64) { expect_near_f64(GetParam(), DType::f32); }
TEST_P(OpPrecision, Bf16NearFloat64) { expect_near_f64(GetParam(), DType::bf16); }
TEST_P(OpPrecision, Fp16NearFloat64) { expect_near_f64(GetParam(), DType::f16); }

INSTANTIATE_TEST_SUITE_P(Table, OpPrecision, testing::ValuesIn(kernel_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Larger, OpPrecision, testing::ValuesIn(larger_cases()), case_name);

class GradientPrecision : public testing::TestWithParam<OpCase> {};

// A gradient passes through a few roundings (the saved output, a product, a sum), so the bound is normwise.
TEST_P(GradientPrecision, NearFloat64) {
  const OpCase& c = GetParam();
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(type));
    std::vector<Tensor> inputs = make_inputs(c, type), weights = make_weights(c, call(c, inputs));
    std::vector<Tensor> exact = gradients(c, as_f64(inputs), as_f64(weights));
    std::vector<Tensor> grads = gradients(c, inputs, weights);
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      EXPECT_EQ(grads[i].dtype(), type) << "a gradient has the type of its leaf";
      EXPECT_LE(normwise_error(to_vector(grads[i]), to_vector(exact[i])),
                gradient_bound(roundoff(type), exact[i], weights))
          << "input " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, GradientPrecision, testing::ValuesIn(differentiable_cases()), case_name);

}  // namespace
}  // namespace sinter
