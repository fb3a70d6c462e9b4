// Test cases made from the table of operations: every op with each of its samples, and larger, odder shapes that no
// sample needs to carry around.
#pragma once
#include "ops/op.h"
#include "support/values.h"

namespace sinter {

struct OpCase {
  const OpDef* op;
  Sample sample;
  std::string name;  // "softmax_2": the op and the number of its sample
};
void PrintTo(const OpCase& c, std::ostream* out);
std::string case_name(const testing::TestParamInfo<OpCase>& info);

std::vector<OpCase> sample_cases();  // all that have samples
std::vector<OpCase> kernel_cases();  // less the views
std::vector<OpCase> differentiable_cases();
std::vector<OpCase> larger_cases();  // for kernels: several threads' worth, odd sizes, long and many rows

// Inputs on the CPU. Floats are of the given type, except those the sample calls wide.
std::vector<Tensor> make_inputs(const OpCase& c, DType type, uint64_t seed = 1);
std::vector<Tensor> as_f64(const std::vector<Tensor>& inputs);  // the same values
std::vector<Tensor> on_device(const std::vector<Tensor>& inputs, DeviceType device);
bool is_differentiable(const OpCase& c, int input);

Outputs call(const OpCase& c, const std::vector<Tensor>& inputs, const Destination* destination = nullptr);

// Weights that turn all differentiable outputs into one number, so that one backward pass covers them.
std::vector<Tensor> make_weights(const OpCase& c, const Outputs& outputs, uint64_t seed = 2);
// Gradients of Σ weight·output: one per input, undefined where there is none. The inputs become leaves.
std::vector<Tensor> gradients(const OpCase& c, const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights);
// How far a gradient computed with roundings of size u may be from the exact one, relative to its norm: a few roundings
// of the gradient itself and of what came in (softmax subtracts, so the result may be much smaller than that).
double gradient_bound(double u, const Tensor& exact, const std::vector<Tensor>& weights);
std::vector<Tensor> detached(const std::vector<Tensor>& inputs);

}  // namespace sinter
