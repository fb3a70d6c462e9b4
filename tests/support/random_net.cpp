#include "support/random_net.h"

#include <cmath>

#include "autograd/tape.h"

namespace sinter {
namespace {

Tensor loss_of(const Net& net, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> v = {leaves[0], leaves[1]};
  Tensor odd = reshape(slice(leaves[3], 0, 1, net.dims.numel()), net.dims);
  auto one_more = [](const Tensor& x) { return affine(square(x), 1, 1); };
  auto cast_to = [](const Tensor& x, DType t) { return x.dtype() == DType::f64 ? x : cast(x, t); };
  // GEMMs of one input with weights that lie side by side.
  auto joined = [&](const Tensor& x) {
    Tensor y = cast(x, leaves[6].dtype());
    auto row_sum = [&](const Tensor& t) { return sum(t, {x.rank() - 1}, true); };
    return add(row_sum(mul(silu(linear(y, leaves[6])), linear(y, leaves[7]))), row_sum(tanh(linear(y, leaves[8]))));
  };
  for (const auto& [op, i, j] : net.steps) {
    const Tensor &a = v[size_t(i)], &b = v[size_t(j)];
    auto apply = [&, op = op]() -> Tensor {
      switch (op) {
        case 0: return add(a, b);
        case 1: return sub(a, b);
        case 2: return tanh(mul(a, b));
        case 3: return div(a, one_more(b));
        case 4: return silu(a);
        case 5: return gelu(a);
        case 6: return affine(a, -0.7, 0.2);
        case 7: return exp(tanh(a));
        case 8: return log(one_more(a));
        case 9: return sqrt(one_more(a));
        case 10: return rsqrt(one_more(a));
        case 11: return sigmoid(a);
        case 12: return relu(neg(a));
        case 13: return mul(a, leaves[5]);
        case 14: return add(a, odd);
        case 15: return cast_to(a, net.types[0]);
        case 16: return cast_to(a, DType::f32);
        case 17: return cast_to(a, net.types[1]);
        case 18: return mul(a, full({}, 1, a.dtype(), a.device()));
        case 19: return add(a, cast(affine(full({1}, 0.5, DType::f32, a.device()), 2, 0.25), a.dtype()));
        case 20:
        case 21: return rms_norm(a, leaves[4]);
        case 22: return rms_norm(add(a, b), leaves[4]);
        case 23: return softmax(a, {1.3, net.causal, 1});
        case 24: return softmax(affine(a, 2, 0), {0.5, false, 0});
        case 25: return mul(swiglu(leaves[2]), a);
        default: return add(a, joined(a));
      }
    };
    v.push_back(apply());
  }
  Tensor loss = sum(tanh(v.back()));
  for (size_t i = 2; i + 1 < v.size(); i += 2) loss = loss + affine(sum(sigmoid(v[i])), 0.3, 0);
  for (const Tensor& t : leaves) loss = loss + affine(sum(square(t)), 1e-3, 0);  // so that every leaf matters
  return loss;
}

}  // namespace

Net random_net(Rng& rng, const Dims& dims, DType narrow, bool row_ops) {
  Net net{dims, {}, {}, dims.rank() == 3};
  for (int i = 0; i < 7; ++i) net.types.push_back(integer(rng, 0, 2) ? narrow : DType::f32);
  int64_t steps = integer(rng, 3, 9);
  for (int i = 0; i < steps; ++i) {
    auto recent = [&] { return int(integer(rng, std::max(0, i - 2), i + 2)); };
    net.steps.push_back({int(integer(rng, 0, row_ops ? 28 : 20)), recent(), recent()});
  }
  return net;
}

std::vector<Tensor> leaves_of(const Net& net, uint64_t seed, bool wide, DeviceType device) {
  Rng rng(seed);
  int64_t n = net.dims.numel(), last = net.dims[net.dims.rank() - 1];
  std::vector<Tensor> leaves;
  auto random = [&](const Dims& shape, DType type) {
    Tensor t = random_tensor(rng, shape, type);
    return to(wide ? tensor_of(to_vector(t), shape, DType::f64) : t, device);
  };
  auto add = [&](const Tensor& leaf, const Tensor& grad) {
    leaves.push_back(leaf);
    require_grad(leaves.back()).grad = grad;
  };
  const Dims shapes[] = {net.dims, net.dims, net.dims.with_last(2 * last), {n + 1}, {last}, {1}};
  for (size_t i = 0; i < 6; ++i) {
    Tensor t = random(shapes[i], net.types[i]);
    add(t, full(shapes[i], 0, t.dtype(), device));
  }
  Tensor weights = affine(random({40, last}, net.types[6]), 1 / std::sqrt(double(last)), 0);
  Tensor grads = full({40, last}, 0, weights.dtype(), device);
  for (int64_t at : {0, 16, 32})
    add(slice(weights, 0, at, std::min<int64_t>(16, 40 - at)), slice(grads, 0, at, std::min<int64_t>(16, 40 - at)));
  return leaves;
}

std::vector<Values> results(const std::vector<Tensor>& leaves, const Tensor& loss) {
  std::vector<Values> all{to_vector(loss)};
  for (const Tensor& l : leaves) all.push_back(to_vector(grad_of(l)));
  return all;
}
compile::Step step_of(const Net& net, const std::vector<Tensor>& leaves) {
  return [&net, &leaves](const std::vector<Tensor>&) {
    for (const Tensor& l : leaves) zero_grad(l);
    Tensor loss = loss_of(net, leaves);
    backward(loss);
    return std::vector{loss.detach()};
  };
}

}  // namespace sinter
