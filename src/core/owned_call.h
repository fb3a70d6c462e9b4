// A call that is kept: it has its operands itself, and copies have their own.
#pragma once
#include <utility>
#include <vector>

#include "core/kernel_call.h"

namespace sinter {

class OwnedCall : public KernelCall {
 public:
  OwnedCall() = default;
  explicit OwnedCall(const KernelCall& call)
      : KernelCall(call), inputs_(call.in, call.in + call.n_in), outputs_(call.out, call.out + call.n_out) {
    point();
  }
  OwnedCall(const OwnedCall& o) : OwnedCall(static_cast<const KernelCall&>(o)) {}
  OwnedCall(OwnedCall&& o) noexcept : KernelCall(o), inputs_(std::move(o.inputs_)), outputs_(std::move(o.outputs_)) {
    point(), o.clear();
  }
  OwnedCall& operator=(OwnedCall o) noexcept {
    static_cast<KernelCall&>(*this) = o;
    inputs_.swap(o.inputs_), outputs_.swap(o.outputs_);
    point(), o.clear();
    return *this;
  }

  TensorRef& input(int i) { return inputs_[size_t(i)]; }
  TensorRef& output(int j) { return outputs_[size_t(j)]; }
  void add_input(const TensorRef& t) { inputs_.push_back(t), point(); }
  void add_output(const TensorRef& t) { outputs_.push_back(t), point(); }
  void clear_inputs() { inputs_.clear(), point(); }
  void clear_outputs() { outputs_.clear(), point(); }

 private:
  void clear() { clear_inputs(), clear_outputs(); }
  void point() {
    in = inputs_.data(), n_in = int(inputs_.size());
    out = outputs_.data(), n_out = int(outputs_.size());
  }

  std::vector<TensorRef> inputs_, outputs_;
};

}  // namespace sinter
