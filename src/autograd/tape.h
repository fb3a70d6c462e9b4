// The tape: every differentiable call leaves a node; backward walks the nodes from the newest to the oldest.
#pragma once
#include <functional>

#include "ops/dispatch.h"

namespace sinter {

// A tensor the user owns and wants a gradient for. Gradients are written straight into `grad` (a parameter's is a view
// of the flat gradient buffer): the first contribution overwrites, later ones add, so nothing is ever zeroed.
class Leaf : public GradientTarget {
 public:
  bool is_leaf() const override { return true; }

  Tensor grad;                                    // given beforehand, or made by the first backward pass …
  std::function<void()> make_grad;                // … in this way, if it is set; asked at each contribution
  std::function<void()> release_grad;             // gives its memory back, if nobody needs it
  bool has_grad = false;                          // `grad` holds something from this accumulation window
  std::vector<std::function<void(Leaf&)>> hooks;  // called in each backward pass when the gradient is complete
  std::string name;

 private:
  friend class Backward;
  int64_t pass = 0;     // the backward pass that last counted
  int64_t pending = 0;  // contributions still to come in it
};

// Makes x a leaf. Its tensor may have no memory yet (parameters are declared before they are allocated).
Leaf& require_grad(const Tensor& x);
Leaf* leaf_of(const Tensor& x);   // null if x is not a leaf
Tensor grad_of(const Tensor& x);  // undefined where nothing arrived
void zero_grad(const Tensor& x);  // starts a new accumulation window; touches no memory

// Gradients of `loss` with respect to every leaf it depends on. `seed` is d(objective)/d(loss), 1 if not given.
// The tape is used up: memory saved for a node is released as soon as the node is done.
void backward(const Tensor& loss, const Tensor& seed = {});

}  // namespace sinter
