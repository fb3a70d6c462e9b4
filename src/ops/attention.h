// The attention op for whoever chooses between it and spelling attention out: where it has a kernel, and what it costs.
#pragma once
#include <string>

#include "ops/op.h"

namespace sinter {

// Why the device has no kernel for attention with such heads; empty: it has one. A GPU that is not in this machine is taken for one that has
// every kernel.
std::string missing_attention(DeviceType device, int64_t head_dim);

// Of so many products over all pairs of a query and a key: two forward, five backward.
Cost attention_cost(const TensorRef& q, const TensorRef& k, const AttentionAttrs& attrs, double products);

}  // namespace sinter
