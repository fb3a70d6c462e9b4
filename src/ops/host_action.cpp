#include "core/range.h"
#include "ops/dispatch.h"
#include "ops/rules.h"

namespace sinter {

namespace ops {
const OpDef host_action{.name = "host_action", .infer = rules::only_compiled, .kind = OpKind::host};
}  // namespace ops

void host_action(HostAction action, TensorPtrs reads, TensorPtrs writes) {
  Range range(ops::host_action.name, RangeKind::op, ops::host_action.where);
  std::vector<const Tensor*> all(reads.begin(), reads.end());
  all.insert(all.end(), writes.begin(), writes.end());
  for (const Tensor* t : all) {
    check(t->defined(), "host_action: an operand is an empty Tensor");
    check(t->device() == all[0]->device(), "host_action: operands are on {} and {}; move one with to(device)",
          name_of(all[0]->device()), name_of(t->device()));
  }
  for (const Tensor* t : writes) t->bump_version();
  if (Recorder* recorder = context().recorder) return recorder->record_action(std::move(action), reads, writes);
  if (!all.empty()) {
    if (all[0]->device() == DeviceType::meta) return;
    synchronize(all[0]->device());
  }
  std::vector<TensorRef> in, out;
  for (const Tensor* t : reads) in.push_back(t->ref());
  for (const Tensor* t : writes) out.push_back(t->ref());
  KernelCall call;
  call.in = in.data(), call.out = out.data();
  call.n_in = int(in.size()), call.n_out = int(out.size());
  action(call);
}

}  // namespace sinter
