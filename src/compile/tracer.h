// Tracing: runs a step with its kernel calls recorded instead of launched.
#pragma once
#include <functional>

#include "autograd/tape.h"
#include "compile/graph.h"
#include "ops/dispatch.h"

namespace sinter::compile {

using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Note [Windows]: whether backward overwrites a leaf's gradient or adds to it depends on what the leaf has
// received since zero_grad(). A trace holds only for leaves that are as they were when it was made, unless the
// step itself begins a new window for them.
struct Windows {
  struct Window {
    Ref<GradientTarget> leaf;
    bool before, after;  // has_grad when the step begins and ends
    bool matters;        // false: the step resets it
  };
  std::vector<Window> leaves;
  bool hold() const;               // now
  void replayed() const;           // leaves are now as after the step
  bool release_gradients() const;  // that nobody needs; whether any had memory
};

// The graph of step(inputs). Nothing is computed and no device memory is taken; leaves are left as they were, also if
// it fails. Refuses a step that reads a value, or keeps a tensor it made without returning it.
Graph trace(const Step& step, const std::vector<Tensor>& inputs, DeviceType device, Windows* windows = nullptr);

}  // namespace sinter::compile
