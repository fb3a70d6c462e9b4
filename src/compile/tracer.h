// Tracing: runs a step with its kernel calls recorded instead of launched.
#pragma once
#include <functional>

#include "compile/graph.h"
#include "ops/dispatch.h"

namespace sinter::compile {

using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// The graph of step(inputs). Nothing is computed and no device memory is taken; host-side state (which gradients have arrived, versions)
// ends up as after a step that ran. Refuses a step that reads a value, or keeps a tensor it made without returning it.
Graph trace(const Step& step, const std::vector<Tensor>& inputs, DeviceType device);

}  // namespace sinter::compile
