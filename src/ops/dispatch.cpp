#include "ops/dispatch.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>

#include "backend/process_group.h"
#include "core/owned_call.h"
#include "core/range.h"
#include "ops/ops.h"

namespace sinter {

RecordGradient record_gradient = nullptr;

namespace {

// A parameter's 16-bit copy, brought up to date if the master changed since.
Tensor low_copy_of(const Tensor& parameter) {
  TensorImpl& p = parameter.impl();
  Tensor copy(p.low_copy);
  if (!p.lender && p.low_copy_version != p.storage->version) {
    uint32_t version = copy.impl().storage->version;
    copy_into(copy, parameter);
    copy.impl().storage->version = version;  // its meaning did not change: what was saved of it stays valid
    if (!context().recorder) p.low_copy_version = p.storage->version;  // a trace casts nothing yet
  }
  return copy;
}

// Applies the table's precision policy: `used` points at what the kernel will read, `held` keeps casts alive.
void apply_autocast(const OpDef& op, TensorPtrs inputs, DType lower, std::array<Tensor, max_inputs>& held,
                    std::array<const Tensor*, max_inputs>& used) {
  DType target = op.autocast == AutocastPolicy::lower ? lower : DType::f32;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = *inputs[i];
    if (!is_float(t.dtype()) || t.dtype() == target || t.dtype() == DType::f64) continue;
    bool has_copy = t.impl().low_copy && t.impl().low_copy->ref.dtype == target;
    held[i] = has_copy ? low_copy_of(t) : cast(t, target);
    used[i] = &held[i];
  }
}

Allocator& memory_of(DeviceType device) {
  Recorder* recorder = context().recorder;
  return recorder ? recorder->allocator() : allocator_of(device);
}

Tensor new_memory(const Dims& dims, const Dims& strides, DType dtype, DeviceType device, void* pool) {
  for (int64_t n : dims) check(n >= 0, "a tensor's sizes cannot be negative: {}", dims);
  int64_t elements = 1;
  for (int d = 0; d < dims.rank(); ++d) {
    elements = dims[d] == 0 ? 0 : elements + (dims[d] - 1) * strides[d];
    if (elements == 0) break;
  }
  Ref<TensorImpl> impl = new TensorImpl;
  impl->device = device;
  impl->ref.dtype = dtype;
  impl->ref.rank = dims.rank();
  std::copy(dims.begin(), dims.end(), impl->ref.dims);
  std::copy(strides.begin(), strides.end(), impl->ref.strides);
  impl->storage = new Storage(memory_of(device), elements * size_of(dtype), pool, &impl->ref);
  impl->ref.data = impl->storage->data;
  return Tensor(std::move(impl));
}

Tensor new_tensor(const OutSpec& spec, DeviceType device) {
  return spec.strides.rank() ? empty_strided(spec.dims, spec.strides, spec.dtype, device)
                             : empty(spec.dims, spec.dtype, device);
}

[[noreturn]] void no_kernel(const OpDef& op, DeviceType device) {
  fail_with(ErrorKind::usage, "{}: there is no kernel for it on {}", op.name, name_of(device));
}

// Whether output j can go to `to`, which must have the right shape in any case.
bool can_write(const OpDef& op, int j, const Tensor& to, const OutSpec& spec, bool accumulate) {
  check(to.dims() == spec.dims, "{}: output {} has shape {}, but the given destination {}", op.name, j, spec.dims,
        to.dims());
  bool type_ok = to.dtype() == spec.dtype || ((op.writes_any_float >> j & 1) && is_float(to.dtype())) ||
                 ((op.writes_fp32 >> j & 1) && to.dtype() == DType::f32 && is_16bit(spec.dtype));
  return type_ok && (!accumulate || (op.accumulates >> j & 1));
}

// What one input brings may make another's go: where several come and go, the call holds on to each.
void bring_memory(const OpDef& op, TensorPtrs inputs, std::array<Tensor, max_inputs>& held,
                  std::array<const Tensor*, max_inputs>& used) {
  int lent = 0;
  for (const Tensor* t : inputs) lent += t->impl().lender != nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorImpl& impl = used[i]->impl();
    check(impl.storage || impl.lender, "{}: a parameter has no memory yet; call allocate() first", op.name);
    if (!impl.storage) impl.lender->lend(impl);
    if (!impl.lender || lent == 1) continue;
    held[i] = used[i]->detach();
    used[i] = &held[i];
  }
}

// What is written into memory that was lent would be lost with it.
void refuse_lent(const OpDef& op, const Tensor& written) {
  check(!written.impl().lender, "{}: a sharded parameter is not written in place; use Parameters::load()", op.name);
}

// Collectives that may not be over yet, with what they use.
struct Communication {
  struct Call {
    OwnedCall call;
    std::vector<Tensor> tensors;
    std::unique_ptr<Event> over;
    bool takes_turns = false;  // on a device that ranks share: then it is waited for by the count
  };
  explicit Communication(DeviceType device)
      : backend(backend_of(device)), stream(backend.create_stream(StreamRole::communication)), moment(device) {}
  DeviceBackend& backend;
  void* stream;
  Event moment;
  std::deque<Call> calls;
  int64_t over = 0;           // calls that were waited for, and are no longer here
  uint32_t* count = nullptr;  // of all calls that are over, on the device: Note [Taking turns]
};
// Never destroyed: a process that ends while a collective waits for others need not wait for it.
template <DeviceType device> Communication& the_communication() {
  static auto* c = new Communication(device);
  return *c;
}
Communication& communication_of(DeviceType device) {
  return device == DeviceType::cuda ? the_communication<DeviceType::cuda>() : the_communication<DeviceType::cpu>();
}
std::atomic<bool> communicates[2];  // by device type, from the first collective on

// After what the caller has submitted so far, beside what it submits next.
void communicate(Kernel kernel, const KernelCall& k, const OpCall& call, DeviceType device) {
  Communication& c = communication_of(device);
  communicates[device == DeviceType::cuda] = true;
  Communication::Call& kept =
      c.calls.emplace_back(Communication::Call{OwnedCall(k), {}, std::make_unique<Event>(device)});
  for (int i = 0; i < call.n_in(); ++i) kept.tensors.push_back(call.in(i).detach());
  kept.call.stream = c.stream;
  c.moment.record();
  c.backend.wait(c.stream, c.moment.native());
  c.backend.submit(kernel, kept.call, {call.op.name, Range::current().id, true});
  c.backend.record(kept.over->native(), c.stream);
  if (!k.attrs.as<CollectiveAttrs>().group->takes_turns(device)) return;
  if (!c.count) {
    c.count = static_cast<uint32_t*>(c.backend.allocate(sizeof *c.count));
    check(c.count, "a collective: the device has no memory left");
    c.backend.fill(c.count, 0, sizeof *c.count, c.stream);
  }
  kept.takes_turns = true;
  c.backend.set_count(c.count, uint32_t(c.over + int64_t(c.calls.size())), c.stream);
}

void run_kernel(const OpCall& call, const Outputs& outputs, DeviceType device, uint32_t accumulate) {
  const OpDef& op = call.op;
  // A meta call goes through everything but the launch, so that workspaces are accounted for too.
  KernelCall k;
  // Not an array of TensorRef, which would clear operands that the call does not have.
  alignas(TensorRef) std::byte operands[(max_inputs + max_outputs) * sizeof(TensorRef)];
  auto *in = reinterpret_cast<TensorRef*>(operands), *out = in + max_inputs;
  k.in = in, k.out = out;
  k.n_in = call.n_in();
  k.n_out = outputs.n;
  k.variant = op.variant;
  k.accumulate = accumulate;
  k.attrs = call.attrs;
  k.math = context().math;
  for (int i = 0; i < k.n_in; ++i) std::construct_at(in + i, call.in(i).ref());
  for (int j = 0; j < k.n_out; ++j) std::construct_at(out + j, outputs[j].ref());

  bool meta = device == DeviceType::meta;
  DeviceType target = meta ? MetaTarget::type() : device;
  k.stream = current_stream(device);
  Ref<Storage> workspace;
  if (op.workspace && (k.workspace_bytes = op.workspace(k, target)) > 0) {
    CategoryScope scope(MemoryCategory::workspace);
    workspace = new Storage(memory_of(device), k.workspace_bytes, k.stream);
    k.workspace = workspace->data;
  }
  if (Recorder* recorder = context().recorder) return recorder->record(call, outputs, k);
  if (meta) return;
  Kernel kernel = backend_of(device).kernels().*(op.kernel);
  if (!kernel) [[unlikely]]
    no_kernel(op, device);
  if (op.kind == OpKind::communication) [[unlikely]]
    return communicate(kernel, k, call, device);
  for (Interceptor* i = context().interceptor; i; i = i->next) i->launching(call);
  kernel(k);
}

}  // namespace

Outputs dispatch_op(const OpDef& op, TensorPtrs inputs, const Attrs& attrs, const Destination* destination) {
  Range range(op.name, RangeKind::op, op.where);
  Context& ctx = context();
  check(inputs.size() <= max_inputs, "{}: {} inputs are more than {}", op.name, inputs.size(), max_inputs);
  std::array<const Tensor*, max_inputs> used;
  std::array<Tensor, max_inputs> held;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]->defined()) [[unlikely]]
      fail_with(ErrorKind::usage, "{}: input {} is an empty Tensor", op.name, i);
    if (inputs[i]->device() != inputs[0]->device()) [[unlikely]]
      fail_with(ErrorKind::usage, "{}: input 0 is on {}, input {} on {}; move one with to(device)", op.name,
                name_of(inputs[0]->device()), i, name_of(inputs[i]->device()));
    used[i] = inputs[i];
  }
  if (ctx.autocast && op.autocast <= AutocastPolicy::fp32) apply_autocast(op, inputs, *ctx.autocast, held, used);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!used[i]->impl().storage) [[unlikely]] {
      bring_memory(op, {used.data(), inputs.size()}, held, used);
      break;
    }
  if (op.kernel)
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (used[i]->is_contiguous() || (op.accepts && op.accepts(used[i]->ref(), int(i), attrs))) continue;
      check(!(op.mutates >> i & 1), "{}: input {} is written in place and must be contiguous", op.name, i);
      held[i] = contiguous(*used[i]);
      used[i] = &held[i];
    }

  if (op.mutates) [[unlikely]]
    for (size_t i = 0; i < inputs.size(); ++i)
      if (op.mutates >> i & 1) refuse_lent(op, *inputs[i]);

  OpCall call{op, {used.data(), inputs.size()}, attrs, ctx.autocast};
  OutSpecs specs;
  op.infer(call, specs);

  DeviceType device = inputs.empty() ? destination->out[0]->device() : inputs[0]->device();
  Outputs outputs;
  outputs.n = specs.n;
  uint32_t accumulate = 0;
  for (int j = 0; j < specs.n; ++j) {
    const OutSpec& spec = specs.out[j];
    const Tensor* to = destination ? destination->out[j] : nullptr;
    bool add = destination && (destination->accumulate >> j & 1);
    if (to) refuse_lent(op, *to);
    if (to && can_write(op, j, *to, spec, add)) {
      outputs.t[j] = *to;
      to->bump_version();
      accumulate |= uint32_t(add) << j;
      continue;
    }
    check(!to || destination->optional, "{}: output {} is {} and cannot be {} a {} tensor", op.name, j,
          name_of(spec.dtype), add ? "added to" : "written to", to ? name_of(to->dtype()) : "");
    if (spec.view_of >= 0) {
      outputs.t[j] = make_view(call.in(spec.view_of), spec.dims, spec.strides, spec.offset);
    } else {
      outputs.t[j] = new_tensor(spec, device);
    }
  }
  if (op.kernel) run_kernel(call, outputs, device, accumulate);
  if (op.mutates) [[unlikely]]
    for (int i = 0; i < call.n_in(); ++i)
      if (op.mutates >> i & 1) inputs[i]->bump_version();

  if (ctx.grad_enabled && op.grad && !destination && record_gradient) record_gradient(call, inputs, outputs);
  for (Interceptor* i = ctx.interceptor; i; i = i->next) i->called(call, inputs, outputs);
  return outputs;
}

int64_t collectives_so_far(DeviceType device) {
  if (device == DeviceType::meta || !communicates[device == DeviceType::cuda]) return 0;
  const Communication& c = communication_of(device);
  return c.over + int64_t(c.calls.size());
}

void join_communication(DeviceType device, int64_t count) {
  if (context().recorder || device == DeviceType::meta || !communicates[device == DeviceType::cuda]) return;
  Communication& c = communication_of(device);
  int64_t waited_for = std::min(count - c.over, int64_t(c.calls.size()));
  if (waited_for <= 0) return;
  const Communication::Call& last = c.calls[size_t(waited_for - 1)];
  void* stream = current_stream(device);
  if (last.takes_turns) c.backend.wait_for_count(stream, c.count, uint32_t(c.over + waited_for));
  else c.backend.wait(stream, last.over->native());
  c.calls.erase(c.calls.begin(), c.calls.begin() + waited_for);
  c.over += waited_for;
}

void join_communication(DeviceType device) { join_communication(device, INT64_MAX); }

void drain_communication(DeviceType device) noexcept {
  if (device == DeviceType::meta || !communicates[device == DeviceType::cuda]) return;
  Communication& c = communication_of(device);
  try {
    c.backend.synchronize(c.stream);
  } catch (...) {  // whoever needed the result hears of it elsewhere
  }
  c.over += int64_t(c.calls.size());
  c.calls.clear();
}

void refuse_while_tracing(const char* what) {
  check(!context().recorder,
        "{} while a step is traced: nothing is computed yet, so no value can be read or brought in; do it before or "
        "after the step, or run "
        "it in eager mode",
        what);
}

Tensor empty_in_pool(const Dims& dims, DType dtype, DeviceType device, void* pool) {
  return new_memory(dims, contiguous_strides(dims), dtype, device, pool ? pool : current_stream(device));
}

Tensor empty_strided(const Dims& dims, const Dims& strides, DType dtype, DeviceType device) {
  return new_memory(dims, strides, dtype, device, current_stream(device));
}

Tensor empty(const Dims& dims, DType dtype, DeviceType device) {
  return empty_strided(dims, contiguous_strides(dims), dtype, device);
}

}  // namespace sinter
