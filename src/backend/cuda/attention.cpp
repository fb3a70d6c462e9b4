// Which kernel an attention call gets.
#include "backend/cuda/attention.h"

#include "backend/cuda/attention_hopper.h"
#include "backend/cuda/runtime.h"
#include "core/attrs.h"

namespace sinter::cuda {
namespace {

bool takes_hopper(const KernelCall& call) {
  const TensorRef& q = call.in[0];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  if (q.dtype != DType::f32 && !is_16bit(q.dtype))
    refuse("attention", std::string("element type ") + name_of(q.dtype) +
                            " is not supported; use fp32, bf16 or fp16, or naive attention");
  if (q.dims[3] > 128)
    refuse("attention",
           "head dimensions up to 128 are supported, not " + std::to_string(q.dims[3]) + "; use naive attention");
  if (attrs.kernel == AttentionKernel::tiled)
    refuse("attention", "the tiled reference runs on the CPU only; use flash or portable");
  return attrs.kernel == AttentionKernel::best && hopper::takes(call);
}

}  // namespace

void attention(const KernelCall& call) { takes_hopper(call) ? hopper::attention(call) : portable_attention(call); }
void attention_backward(const KernelCall& call) {
  takes_hopper(call) ? hopper::attention_backward(call) : portable_attention_backward(call);
}
void attention_weights(const KernelCall& call) {
  hopper::takes_weights(call) ? hopper::attention_weights(call) : portable_attention_weights(call);
}
void attention_weights_backward(const KernelCall& call) {
  hopper::takes_weights(call) ? hopper::attention_weights_backward(call) : portable_attention_weights_backward(call);
}

}  // namespace sinter::cuda
