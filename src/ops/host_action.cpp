#include "ops/dispatch.h"
#include "ops/rules.h"

namespace sinter {

namespace ops {
const OpDef host_action{.name = "host_action", .infer = rules::only_compiled, .kind = OpKind::host};
}  // namespace ops

void host_action(HostAction action, TensorPtrs reads, TensorPtrs writes) {
  if (Recorder* recorder = context().recorder) return recorder->record_action(std::move(action), reads, writes);
  std::vector<TensorRef> in, out;
  for (const Tensor* t : reads) in.push_back(t->ref());
  for (const Tensor* t : writes) out.push_back(t->ref()), t->bump_version();
  if (!reads.empty() || !writes.empty()) {
    DeviceType device = (reads.empty() ? writes : reads)[0]->device();
    if (device == DeviceType::meta) return;
    synchronize(device);
  }
  KernelCall call;
  call.in = in.data(), call.out = out.data();
  call.n_in = int(in.size()), call.n_out = int(out.size());
  action(call);
}

}  // namespace sinter
