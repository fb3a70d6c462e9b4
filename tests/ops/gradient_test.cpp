// Every gradient rule against central differences in float64, through the tape.
#include <cmath>

#include "autograd/tape.h"
#include "ops/table.h"
#include "support/op_cases.h"

namespace sinter {
namespace {

class OpGradient : public testing::TestWithParam<OpCase> {};

double objective(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights) {
  NoGrad off;
  Outputs out = call(c, inputs);
  double total = 0;
  for (int j = 0; j < out.n; ++j) {
    if (!weights[size_t(j)].defined()) continue;
    Values y = to_vector(out[j]), w = to_vector(weights[size_t(j)]);
    for (size_t i = 0; i < y.size(); ++i) total += y[i] * w[i];
  }
  return total;
}

// d/dt of the objective with input i moved by t·direction, to fourth order.
double derivative(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights, size_t i,
                  const Values& direction, double h) {
  Values x = to_vector(inputs[i]);
  auto at = [&](double t) {
    Values moved = x;
    for (size_t k = 0; k < x.size(); ++k) moved[k] += t * direction[k];
    std::vector<Tensor> all = inputs;
    all[i] = tensor_of(moved, inputs[i].dims(), DType::f64);
    return objective(c, all, weights);
  };
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

TEST_P(OpGradient, MatchesNumericDerivative) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f64);
  std::vector<Tensor> weights = make_weights(c, call(c, inputs));
  std::vector<Tensor> grads = gradients(c, detached(inputs), weights);
  // cast rounds to fp32: it is linear, so a wide step is exact and drowns the rounding.
  bool rounds = c.op == &ops::cast;
  double h = rounds ? 8 : 1e-3, bound = rounds ? 1e-6 : 2e-9;
  Rng rng(3);
  int checked = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_differentiable(c, int(i))) continue;
    ASSERT_TRUE(grads[i].defined()) << "input " << i << " got no gradient";
    ASSERT_EQ(grads[i].dims(), inputs[i].dims());
    EXPECT_EQ(grads[i].dtype(), DType::f64);
    Values g = to_vector(grads[i]);
    double largest = 0;
    for (double x : g) largest = std::max(largest, std::fabs(x));
    // Two random directions see every element; single elements say which one is wrong.
    for (int k = 0; k < 10; ++k) {
      Values direction(g.size(), 0.0);
      if (k < 2)
        for (double& d : direction) d = uniform(rng, -1, 1) / std::sqrt(double(g.size()));
      else direction[size_t(integer(rng, 0, int64_t(g.size())))] = 1;
      double expected = 0;
      for (size_t e = 0; e < g.size(); ++e) expected += g[e] * direction[e];
      double actual = derivative(c, inputs, weights, i, direction, h);
      EXPECT_NEAR(actual, expected, bound * (1 + largest)) << "input " << i << ", direction " << k;
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

// A gradient does not depend on which other gradients are wanted.
TEST_P(OpGradient, EachInputAloneGetsTheSame) {
  const OpCase& c = GetParam();
  std::vector<Tensor> inputs = make_inputs(c, DType::f64);
  std::vector<Tensor> weights = make_weights(c, call(c, inputs));
  std::vector<Tensor> all = gradients(c, detached(inputs), weights);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_differentiable(c, int(i))) continue;
    std::vector<Tensor> one = detached(inputs);
    require_grad(one[i]);
    EXPECT_TRUE(near(gradients(c, one, weights)[i], all[i], 0, 1e-14)) << "input " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpGradient, testing::ValuesIn(differentiable_cases()), case_name);

}  // namespace
}  // namespace sinter
