// The attention op for whoever chooses between it and spelling attention out: where it has a kernel, and what it costs.
#pragma once
#include <string>

#include "backend/device.h"
#include "ops/op.h"

namespace sinter {

// Why the device has no kernel for attention with such heads; empty: it has one.
std::string missing_attention(const DeviceInfo& device, int64_t head_dim);

// Of so many products over all pairs of a query and a key: two forward, five backward.
Cost attention_cost(const TensorRef& q, const TensorRef& k, const AttentionAttrs& attrs, double products);

}  // namespace sinter
