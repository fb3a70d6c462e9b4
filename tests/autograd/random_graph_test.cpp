// Random expression graphs: tensors used many times, views of shared gradients, diamonds, broadcasting. In place
// accumulation is right only if every such graph agrees with numeric derivatives.
#include <cmath>

#include "autograd/tape.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Step {
  int op, a, b;
};
struct Program {
  std::vector<Dims> leaves;
  std::vector<Step> steps;
  std::vector<int> losses;  // which values are summed, some twice
};

constexpr int op_count = 18;

bool broadcasts(const Dims& a, const Dims& b) {
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
    int64_t n = a[a.rank() - i], m = b[b.rank() - i];
    if (n != m && n != 1 && m != 1) return false;
  }
  return true;
}

// Any op on any operands: what does not fit falls back on something that does.
Tensor apply(int op, const Tensor& a, const Tensor& b) {
  bool two = broadcasts(a.dims(), b.dims());
  int last = a.rank() - 1;
  switch (op) {
    case 0: return two ? add(a, b) : neg(a);
    case 1: return two ? tanh(mul(a, b)) : sigmoid(a);
    case 2: return two ? sub(a, b) : affine(a, 0.5, 1);
    case 3: return add(a, a);
    case 4: return tanh(mul(a, a));
    case 5: return a.rank() >= 2 ? transpose(a, 0, last) : tanh(a);
    case 6: return reshape(a, {-1, 1});
    case 7: return reshape(a, {1, -1});
    case 8: return a.rank() >= 1 && a.size(0) > 1 ? slice(a, 0, 1, a.size(0) - 1) : affine(a, -1, 0);
    case 9: return a.rank() >= 1 ? sum(a, {0}, true) : square(a);
    case 10: return a.rank() >= 1 ? softmax(a) : a;
    case 11: return a.rank() == 2 && b.rank() == 2 && a.size(1) == b.size(0) ? tanh(matmul(a, b)) : silu(a);
    case 12: return a.rank() == 2 && b.rank() == 2 && a.size(1) == b.size(1) ? tanh(linear(a, b)) : gelu(a);
    case 13:
      return a.rank() >= 1 && a.size(0) == 1 && a.rank() <= 2 ? expand(a, a.rank() == 1 ? Dims{3} : Dims{3, a.size(1)})
                                                              : copy(a);
    case 16: return tanh(a);
    case 17: return sigmoid(a);
    case 14: return two ? div(a, affine(square(b), 1, 1)) : a;
    default: return reshape(a, a.dims());
  }
}

std::vector<Tensor> evaluate(const Program& p, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> values = leaves;
  for (const Step& s : p.steps) {
    Tensor y = apply(s.op, values[size_t(s.a)], values[size_t(s.b)]);
    values.push_back(y.numel() > 200 ? sum(y) : y);
  }
  return values;
}

Tensor loss_of(const Program& p, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> values = evaluate(p, leaves);
  Tensor loss;
  for (size_t i = 0; i < p.losses.size(); ++i) {
    Tensor part = affine(sum(sigmoid(values[size_t(p.losses[i])])), 1 + 0.3 * double(i), 0);
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

Program random_program(Rng& rng) {
  const std::vector<Dims> shapes{{}, {3}, {2, 3}, {3, 2}, {2, 1}, {1, 3}, {2, 2, 3}};
  Program p;
  int leaves = int(integer(rng, 1, 4)), steps = int(integer(rng, 3, 14));
  for (int i = 0; i < leaves; ++i) p.leaves.push_back(shapes[size_t(integer(rng, 0, int64_t(shapes.size())))]);
  for (int i = 0; i < steps; ++i) {
    // Recent values more often, so that graphs grow deep; the same value twice is as likely as any other.
    auto pick = [&] { return int(integer(rng, std::max<int64_t>(0, leaves + i - 4), leaves + i)); };
    // Sums and copies hand the same gradient to several inputs: they come most often.
    int op = integer(rng, 0, 2) ? int(integer(rng, 0, op_count))
                                : std::vector<int>{0, 0, 2, 3, 5, 6, 16, 17}[size_t(integer(rng, 0, 8))];
    p.steps.push_back({op, pick(), pick()});
  }
  for (int i = 0; i < leaves; ++i) p.losses.push_back(i);  // so that every leaf matters
  for (int i = 0; i < 5; ++i) p.losses.push_back(int(integer(rng, leaves, leaves + steps)));
  return p;
}

std::string describe(const Program& p) {
  std::string s = "leaves";
  for (const Dims& d : p.leaves) s += " " + d.str();
  for (const Step& step : p.steps) s += fmt::format("; op {} of {}, {}", step.op, step.a, step.b);
  s += "; losses";
  for (int l : p.losses) s += fmt::format(" {}", l);
  return s;
}

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
