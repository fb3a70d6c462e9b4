// One recorded call.
//
// Note [Recomputation]: what a gradient rule reads is kept alive until backward. Where it is the result of a cheap op
// (a norm, a SwiGLU: OpDef::cheap) whose own inputs are kept anyway, it is not kept but recomputed from them when
// backward needs it. The producer runs its own gradient later than any consumer, so its inputs are still there.
#pragma once
#include "autograd/tape.h"
#include "core/range.h"

namespace sinter {

constexpr int max_recorded_inputs = 5;

class Node : public GradientTarget {
 public:
  ~Node() override;
  bool is_leaf() const override { return false; }

  struct Input {
    Tensor saved;                // only what the gradient rule reads
    bool again = false;          // … which `target` recomputes
    uint32_t saved_version = 0;  // of the saved tensor's storage when it was saved
    Ref<GradientTarget> target;  // null: needs no gradient
    int slot = 0;                // which output of the target
    Dims dims;
    DType dtype = DType::f32;  // the gradient's type
  };
  struct Output {
    Tensor saved;
    uint32_t saved_version = 0;
    Tensor grad;  // the sum so far
    Dims dims;
    DType dtype = DType::f32;
  };

  const OpDef* op = nullptr;
  Attrs attrs;
  int64_t sequence = 0;  // calls are numbered: a consumer is always newer than what it consumes
  int64_t visited = 0;   // the backward pass that last reached this node
  DeviceType device = DeviceType::cpu;
  const RangeNode* range = nullptr;  // where the call was made
  std::optional<DType> autocast;     // in force when the call was made
  int n_in = 0, n_out = 0;
  bool done = false;  // its saved tensors are gone
  std::array<Input, max_recorded_inputs> in;
  std::array<Output, max_outputs> out;
};

}  // namespace sinter
