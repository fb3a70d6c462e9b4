// What ranks that train together do around a pass of one of them. The model and the tape know nothing of it.
#pragma once
#include "backend/process_group.h"
#include "optim/optimizer.h"

namespace sinter::dist {

class Parallel {
 public:
  virtual ~Parallel() = default;
  virtual ProcessGroup& group() const = 0;

  virtual void begin_pass() {}
  virtual void end_pass() noexcept {}  // also where the pass failed
  // Around a backward pass, eager or traced; a step may have several, one for each micro-batch.
  struct Window {
    bool first = true, last = true;  // of the step
    bool used_up = false;            // the step follows in the same pass, and nobody reads gradients after it
  };
  virtual void begin_backward(Window window) = 0;
  virtual void finish_backward() = 0;               // after the last, the gradients that a rank updates are averages
  virtual void average(const Tensor& x) const = 0;  // over ranks, in place
  virtual void step(Optimizer& optimizer) = 0;
  virtual void refresh() {}       // before a pass: what follows parameters that something else has changed
  virtual void was_replayed() {}  // a compiled step has done all of it
};

}  // namespace sinter::dist
