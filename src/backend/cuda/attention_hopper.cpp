// What the Hopper attention kernels can take.
#include "backend/cuda/attention_hopper.h"

#include "backend/cuda/hopper.h"
#include "core/attrs.h"

namespace sinter::cuda::hopper {
namespace {

// TMA wants 16-byte addresses and strides. A dimension of one element may have any stride: it is never taken.
bool can_map(const TensorRef& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (t.dims[d] > 1 && (t.strides[d] * 2 % 16 != 0 || t.strides[d] <= 0 || t.strides[d] * 2 >= int64_t(1) << 40))
      return false;
  return true;
}

bool takes_operands(const KernelCall& call, double scale) {
  const TensorRef& q = call.in[0];
  if (!can_run() || !is_16bit(q.dtype) || q.dims[3] > 128) return false;
  if (!(scale > 0)) return false;  // the largest scaled score must be the largest score
  for (int d = 0; d < 3; ++d)
    if (q.dims[d] == 0 || call.in[1].dims[d] == 0 || q.dims[d] >= 1 << 30 || call.in[1].dims[d] >= 1 << 30)
      return false;
  for (int i = 0; i < call.n_in; ++i)
    if (call.in[i].rank == 4 && !can_map(call.in[i])) return false;
  for (int i = 0; i < call.n_out; ++i)
    if (call.out[i].rank == 4 && !can_map(call.out[i])) return false;
  return true;
}

}  // namespace

bool takes(const KernelCall& call) {
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  // Backward takes turns by key block, counted in 16 bits (attention_hopper_backward.cu).
  if (attrs.deterministic && call.in[1].dims[2] > int64_t(65535) * 128) return false;
  return takes_operands(call, attrs.scale);
}
bool takes_weights(const KernelCall& call) {
  return call.in[0].dims[3] % 8 == 0 && takes_operands(call, call.attrs.as<AttentionWeightsAttrs>().scale);
}

}  // namespace sinter::cuda::hopper
