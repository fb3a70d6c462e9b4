// The one function everything passes through.
#pragma once
#include <functional>

#include "ops/context.h"
#include "ops/op.h"

namespace sinter {

// Where outputs go instead of fresh memory; null entries are allocated.
struct Destination {
  std::array<const Tensor*, max_outputs> out = {};
  uint32_t accumulate = 0;  // bit j: add to out[j]
  bool optional = false;    // an output the op cannot put there (its type, or no way to add) gets fresh memory instead
};

Outputs dispatch_op(const OpDef& op, TensorPtrs inputs, const Attrs& attrs, const Destination* destination = nullptr);

template <class... T> Outputs dispatch(const OpDef& op, const Attrs& attrs, const T&... inputs) {
  const Tensor* ptrs[] = {&inputs...};
  return dispatch_op(op, ptrs, attrs);
}

// Listens to the calls of its thread: those that dispatch makes, also on the meta device or while a step is traced, and
// those of compiled steps. The cost counter is one; so is the profiler on the CPU, and on a GPU without CUPTI. Host
// actions are not calls, and the tape is no listener: it is called before them (record_gradient, below).
class Interceptor {
 public:
  // Just before the kernel is called: not for views, not on the meta device, not while a step is traced.
  virtual void launching(const OpCall&) {}
  // `inputs` are what the caller passed (a parameter stays itself), `used` what the kernel read after the precision
  // policy (a parameter's 16-bit copy).
  virtual void called(const OpCall& used, TensorPtrs inputs, const Outputs& outputs) = 0;
  // The same for a call of a compiled step, whose tensors are long gone. Calls that are launched together, as one
  // captured graph, are only reported by replayed(), one by one, after the launch.
  virtual void replaying(const OpDef&) {}
  virtual void replayed(const OpDef&, const Cost&, [[maybe_unused]] double bytes) {}
  virtual ~Interceptor() = default;
  Interceptor* next = nullptr;
};

// Listens for as long as it lives.
class Listening {
 public:
  explicit Listening(Interceptor& i) : interceptor_(i) {
    i.next = context().interceptor;
    context().interceptor = &i;
  }
  ~Listening() { context().interceptor = interceptor_.next; }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  Interceptor& interceptor_;
};

// Note [Host actions]: something the host does in the middle of a step, such as a collective that is staged through its
// memory, or a look at the clock. It is called with what it reads as inputs and what it writes as outputs (what it
// changes is both), once calls before it have written that. Eager mode waits for the device, and for the action. A
// compiled step is cut there: no call moves across, but the action waits only for the calls that it depends on, runs on
// a thread of its own, and is waited for only by calls that touch its operands, and at the end. What it does on the
// device is over when it returns. Without operands it waits for nothing: it is called as soon as all before it has been
// submitted. The meta device calls only those, and a trace none.
using HostAction = std::function<void(const KernelCall&)>;
void host_action(HostAction action, TensorPtrs reads = {}, TensorPtrs writes = {});

// Takes the place of a device while a step is traced: dispatch does all it does, but memory is the recorder's and
// kernels are handed to it instead of being launched.
class Recorder {
 public:
  virtual Allocator& allocator() = 0;
  // `kernel` is what would have been launched; its pointers lie in the storages of the call's
  // tensors, or are the recorder's.
  virtual void record(const OpCall& call, const Outputs& outputs, const KernelCall& kernel) = 0;
  virtual void record_action(HostAction action, TensorPtrs reads, TensorPtrs writes) = 0;
  // A leaf's window of accumulation matters to what is recorded: backward is about to add to its gradient or to
  // overwrite it; or a new window begins, whatever was before.
  virtual void leaf_used(GradientTarget& leaf) = 0;
  virtual void leaf_reset(GradientTarget& leaf) = 0;
  virtual ~Recorder() = default;
};
// Refuses what would need a value, or bring one from the host, while calls are only recorded.
void refuse_while_tracing(const char* what);

// The tape is consulted on every call without being installed (autograd/tape.cpp sets it at start).
using RecordGradient = void (*)(const OpCall& used, TensorPtrs inputs, const Outputs& outputs);
extern RecordGradient record_gradient;

Tensor empty(const Dims& dims, DType dtype, DeviceType device);
Tensor empty_strided(const Dims& dims, const Dims& strides, DType dtype, DeviceType device);
Tensor empty_in_pool(const Dims& dims, DType dtype, DeviceType device, void* pool);  // CachingAllocator::add_pool

}  // namespace sinter
