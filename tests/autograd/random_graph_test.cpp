// In place accumulation is right only if every random graph agrees with numeric derivatives.
#include <cmath>

#include "autograd/tape.h"
#include "support/random_program.h"

namespace sinter {
namespace {

double numeric(const Program& p, const std::vector<Values>& leaves, size_t which, const Values& direction) {
  NoGrad off;
  auto at = [&](double t) {
    std::vector<Tensor> moved;
    for (size_t i = 0; i < leaves.size(); ++i) {
      Values v = leaves[i];
      if (i == which)
        for (size_t k = 0; k < v.size(); ++k) v[k] += t * direction[k];
      moved.push_back(tensor_of(v, p.leaves[i], DType::f64));
    }
    return item(loss_of(p, moved));
  };
  double h = 2e-4;
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

class RandomGraph : public testing::TestWithParam<int> {};

TEST_P(RandomGraph, MatchesNumericDerivative) {
  for (int k = 0; k < 10; ++k) {
    uint64_t seed = uint64_t(GetParam()) * 10 + uint64_t(k);
    Rng rng(seed);
    Program p = random_program(rng);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(p));
    std::vector<Values> values;
    std::vector<Tensor> leaves;
    Tensor flat = full({100}, NAN, DType::f64, DeviceType::cpu);  // half of the leaves own a buffer beforehand
    int64_t offset = 0;
    for (const Dims& d : p.leaves) {
      values.push_back(normals(rng, d.numel()));
      leaves.push_back(tensor_of(values.back(), d, DType::f64));
      Leaf& l = require_grad(leaves.back());
      if (integer(rng, 0, 2)) l.grad = make_view(flat, d, contiguous_strides(d), offset);
      offset += d.numel();
    }
    for (int pass = 1; pass <= 2; ++pass) {  // the second accumulates
      backward(loss_of(p, leaves));
      for (size_t i = 0; i < leaves.size(); ++i) {
        Values g = to_vector(grad_of(leaves[i])), direction;
        double expected = 0, size = 0;
        for (size_t e = 0; e < g.size(); ++e)
          direction.push_back(uniform(rng, -1, 1)), size = std::max(size, std::fabs(g[e]));
        for (size_t e = 0; e < g.size(); ++e) expected += g[e] * direction[e];
        EXPECT_NEAR(pass * numeric(p, values, i, direction), expected, 1e-7 * (1 + size))
            << "leaf " << i << ", pass " << pass;
      }
    }
    for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(to_vector(leaves[i]), values[i]) << "inputs stay as they are";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, testing::Range(0, 60));

}  // namespace
}  // namespace sinter
