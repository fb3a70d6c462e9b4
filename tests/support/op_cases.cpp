#include "support/op_cases.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/rules.h"

namespace sinter {
namespace {

std::vector<OpCase> cases_where(const std::function<bool(const OpDef&)>& wanted) {
  std::vector<OpCase> cases;
  for (const OpDef* op : all_ops())
    for (size_t i = 0; i < op->samples.size(); ++i)
      if (wanted(*op)) cases.push_back({op, op->samples[i], std::string(op->name) + "_" + std::to_string(i)});
  return cases;
}

bool is_wide(const SampleInput& in) { return in.wide || in.fill == SampleInput::angles; }

Values values_for(Rng& rng, const SampleInput& in) {
  Values v = normals(rng, in.dims.numel());
  for (double& x : v) switch (in.fill) {
      case SampleInput::normal: break;
      case SampleInput::positive: x = uniform(rng, 0.5, 2); break;
      case SampleInput::token_ids: x = double(integer(rng, 0, in.below)); break;
      case SampleInput::boolean: x = double(integer(rng, 0, 2)); break;
      case SampleInput::angles: x = uniform(rng, -1, 1); break;
    }
  return v;
}

}  // namespace

void PrintTo(const OpCase& c, std::ostream* out) {
  *out << c.op->name;
  for (const SampleInput& in : c.sample.inputs) *out << " " << in.dims.str();
}
std::string case_name(const testing::TestParamInfo<OpCase>& info) { return info.param.name; }

std::vector<OpCase> sample_cases() {
  return cases_where([](const OpDef&) { return true; });
}
std::vector<OpCase> kernel_cases() {
  return cases_where([](const OpDef& op) { return op.kernel != nullptr; });
}
std::vector<OpCase> differentiable_cases() {
  return cases_where([](const OpDef& op) { return op.grad != nullptr; });
}

std::vector<Tensor> make_inputs(const OpCase& c, DType type, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor> inputs;
  for (const SampleInput& in : c.sample.inputs) {
    DType t = in.fill == SampleInput::token_ids ? DType::i64
              : in.fill == SampleInput::boolean ? DType::boolean
              : is_wide(in)                     ? rules::wide(type)
                                                : type;
    inputs.push_back(tensor_of(values_for(rng, in), in.dims, t));
  }
  return inputs;
}

std::vector<Tensor> as_f64(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> same;
  for (const Tensor& t : inputs) {
    bool converts = t.defined() && is_float(t.dtype());
    same.push_back(converts ? tensor_of(to_vector(t), t.dims(), DType::f64) : t);
  }
  return same;
}

std::vector<Tensor> on_device(const std::vector<Tensor>& inputs, DeviceType device) {
  std::vector<Tensor> moved;
  for (const Tensor& t : inputs) moved.push_back(to(t, device));
  return moved;
}

std::vector<Tensor> detached(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> fresh;
  for (const Tensor& t : inputs) fresh.push_back(t.detach());
  return fresh;
}

bool is_differentiable(const OpCase& c, int input) {
  SampleInput::Fill fill = c.sample.inputs[size_t(input)].fill;
  return fill == SampleInput::normal || fill == SampleInput::positive;
}

Outputs call(const OpCase& c, const std::vector<Tensor>& inputs, const Destination* destination) {
  if (c.op == &ops::reshape) {  // only its front knows when to copy
    const auto& a = c.sample.attrs.as<ViewAttrs>();
    Outputs out;
    out.t[0] = reshape(inputs[0], Dims(a.dims, a.rank));
    out.n = 1;
    return out;
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : inputs) pointers.push_back(&t);
  return dispatch_op(*c.op, pointers, c.sample.attrs, destination);
}

std::vector<Tensor> make_weights(const OpCase& c, const Outputs& outputs, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor> weights(size_t(outputs.n));
  for (int j = 0; j < outputs.n; ++j)
    if (c.op->differentiable >> j & 1) weights[size_t(j)] = random_tensor(rng, outputs[j].dims(), outputs[j].dtype());
  return weights;
}

double gradient_bound(double u, const Tensor& exact, const std::vector<Tensor>& weights) {
  double incoming = 0, size = norm(to_vector(exact));
  for (const Tensor& w : weights)
    if (w.defined()) incoming += norm(to_vector(w));
  return 4 * u * (1 + (size > 0 ? incoming / size : 0)) + 1e-6;
}

std::vector<Tensor> gradients(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights) {
  bool any_asked = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
  for (size_t i = 0; i < inputs.size() && !any_asked; ++i)
    if (is_differentiable(c, int(i))) require_grad(inputs[i]);
  Outputs out = call(c, inputs);
  Tensor loss;
  for (int j = 0; j < out.n; ++j) {
    if (!(c.op->differentiable >> j & 1)) continue;
    Tensor part = sum(mul(out[j], to(weights[size_t(j)], out[j].device())));
    loss = loss.defined() ? add(loss, part) : part;
  }
  backward(loss);
  std::vector<Tensor> grads;
  for (const Tensor& t : inputs) grads.push_back(leaf_of(t) ? grad_of(t) : Tensor());
  return grads;
}

}  // namespace sinter
