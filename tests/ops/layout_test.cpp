// How an input lies in memory changes neither results nor gradients.
#include "support/op_cases.h"

namespace sinter {
namespace {

class OpLayout : public testing::TestWithParam<OpCase> {};

TEST_P(OpLayout, StridedInputsGiveTheSame) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f64);
  Outputs expected = call(c, inputs);
  std::vector<Tensor> weights, grads;
  if (c.op->grad) {
    weights = make_weights(c, expected);
    grads = gradients(c, detached(inputs), weights);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    for (Layout layout : layouts_for(inputs[i].rank())) {
      SCOPED_TRACE(std::string("input ") + std::to_string(i) + " " + name_of(layout));
      std::vector<Tensor> strided = detached(inputs);
      strided[i] = with_layout(inputs[i], layout);
      Outputs out = call(c, strided);
      ASSERT_EQ(out.n, expected.n);
      for (int j = 0; j < out.n; ++j) EXPECT_TRUE(near(out[j], expected[j], 0, 1e-13)) << "output " << j;
      if (!c.op->grad) continue;
      std::vector<Tensor> strided_grads = gradients(c, strided, weights);
      for (size_t k = 0; k < grads.size(); ++k) {
        if (!grads[k].defined()) continue;
        EXPECT_TRUE(near(strided_grads[k], grads[k], 0, 1e-13)) << "gradient " << k;
      }
    }
}

TEST_P(OpLayout, AllInputsStridedAtOnce) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f32), strided;
  for (const Tensor& t : inputs) {
    auto layouts = layouts_for(t.rank());
    strided.push_back(layouts.empty() ? t : with_layout(t, layouts[strided.size() % layouts.size()]));
  }
  Outputs expected = call(c, inputs), out = call(c, strided);
  for (int j = 0; j < out.n; ++j) EXPECT_TRUE(near(out[j], expected[j], 1e-6, 1e-6)) << "output " << j;
}

// Rows that are all the same memory, as broadcasting leaves them.
TEST_P(OpLayout, ExpandedInputsGiveTheSame) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f64);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int d = 0; d < inputs[i].rank(); ++d) {
      SCOPED_TRACE(std::string("input ") + std::to_string(i) + ", dimension " + std::to_string(d));
      std::vector<Tensor> expanded = inputs, copied = inputs;
      expanded[i] = expand(slice(inputs[i], d, 0, 1), inputs[i].dims());
      copied[i] = copy(expanded[i]);
      Outputs expected = call(c, copied), out = call(c, expanded);
      for (int j = 0; j < out.n; ++j) EXPECT_TRUE(near(out[j], expected[j], 0, 1e-13)) << "output " << j;
    }
}

INSTANTIATE_TEST_SUITE_P(Table, OpLayout, testing::ValuesIn(sample_cases()), case_name);

}  // namespace
}  // namespace sinter
