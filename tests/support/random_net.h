// Random nets over tensors of rows, for fused kernels and joined GEMMs: pointwise functions, ops on whole rows,
// casts between types, constants, GEMMs of one input.
#pragma once
#include <array>

#include "compile/tracer.h"
#include "support/values.h"

namespace sinter {

// Leaves: two tensors of rows, rows of twice the length, rows that begin at an odd address, a weight, a single number,
// and three matrices of one buffer.
struct Net {
  Dims dims;
  std::vector<DType> types;  // of the leaves
  std::vector<std::array<int, 3>> steps;
  bool causal;
};
Net random_net(Rng& rng, const Dims& dims, DType narrow, bool row_ops);
std::vector<Tensor> leaves_of(const Net& net, uint64_t seed, bool wide,
                              DeviceType device = DeviceType::cpu);        // wide: the same numbers in fp64
compile::Step step_of(const Net& net, const std::vector<Tensor>& leaves);  // loss and gradients
std::vector<Values> results(const std::vector<Tensor>& leaves, const Tensor& loss);

}  // namespace sinter
