#include "support/random_program.h"

#include "ops/ops.h"

namespace sinter {
namespace {

constexpr int op_count = 23;

bool broadcasts(const Dims& a, const Dims& b) {
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
    int64_t n = a[a.rank() - i], m = b[b.rank() - i];
    if (n != m && n != 1 && m != 1) return false;
  }
  return true;
}

// GEMMs of one input with weights that lie one after the other.
Tensor side_by_side(const Tensor& x, const Tensor& from) {
  int64_t k = x.size(1);
  auto weight = [&](int64_t i) { return reshape(slice(reshape(from, {-1}), 0, i * 4 * k, 4 * k), {4, k}); };
  return tanh(mul(linear(x, weight(0)), silu(linear(x, weight(1)))));
}

// Any op on any operands: what does not fit falls back on something that does.
Tensor apply(int op, const Tensor& a, const Tensor& b) {
  bool two = broadcasts(a.dims(), b.dims());
  int last = a.rank() - 1;
  auto constant = [&](const Dims& dims, double value) { return full(dims, value, a.dtype(), a.device()); };
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
    case 18: return mul(constant(a.dims(), 1), a);
    case 19: return add(a, neg(constant({}, 0)));
    case 20: return sub(a, affine(square(constant({1}, 0.5)), 2, 0.25));
    case 21: return div(a, exp(constant({}, 0.5)));
    case 22: return a.rank() == 2 && b.numel() >= 8 * a.size(1) ? side_by_side(a, b) : a;
    case 14: return two ? div(a, affine(square(b), 1, 1)) : a;
    default: return reshape(a, a.dims());
  }
}

std::vector<Tensor> evaluate(const Program& p, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> values = leaves;
  for (const ProgramStep& s : p.steps) {
    Tensor y = apply(s.op, values[size_t(s.a)], values[size_t(s.b)]);
    values.push_back(y.numel() > 200 ? sum(y) : y);
  }
  return values;
}

}  // namespace

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
  const std::vector<Dims> shapes{{}, {3}, {2, 3}, {3, 2}, {2, 1}, {1, 3}, {2, 2, 3}, {4, 2}, {8, 4}};
  Program p;
  int leaves = int(integer(rng, 1, 4)), steps = int(integer(rng, 3, 14));
  for (int i = 0; i < leaves; ++i) p.leaves.push_back(shapes[size_t(integer(rng, 0, int64_t(shapes.size())))]);
  for (int i = 0; i < steps; ++i) {
    // Recent values more often, so that graphs grow deep; the same value twice is as likely as any other.
    auto pick = [&] { return int(integer(rng, std::max<int64_t>(0, leaves + i - 4), leaves + i)); };
    // Sums and copies hand the same gradient to several inputs: they come most often.
    int op = integer(rng, 0, 2) ? int(integer(rng, 0, op_count))
                                : std::vector<int>{0, 0, 2, 3, 5, 6, 16, 17, 22}[size_t(integer(rng, 0, 9))];
    p.steps.push_back({op, pick(), pick()});
  }
  for (int i = 0; i < leaves; ++i) p.losses.push_back(i);  // so that every leaf matters
  for (int i = 0; i < 5; ++i) p.losses.push_back(int(integer(rng, leaves, leaves + steps)));
  return p;
}

std::string describe(const Program& p) {
  std::string s = "leaves";
  for (const Dims& d : p.leaves) s += " " + d.str();
  for (const ProgramStep& step : p.steps) s += fmt::format("; op {} of {}, {}", step.op, step.a, step.b);
  s += "; losses";
  for (int l : p.losses) s += fmt::format(" {}", l);
  return s;
}

}  // namespace sinter
