// Which kernel an attention call gets.
#include "backend/cuda/attention.h"

#include "backend/cuda/attention_hopper.h"
#include "backend/cuda/runtime.h"
#include "core/attrs.h"

namespace sinter::cuda {
namespace {

bool takes_hopper(const KernelCall& call) {
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  if (attrs.kernel == AttentionKernel::tiled) refuse("attention", "the tiled reference runs on the CPU only; use flash or portable");
  return attrs.kernel == AttentionKernel::best && hopper::takes(call);
}

}  // namespace

void attention(const KernelCall& call) { takes_hopper(call) ? hopper::attention(call) : portable_attention(call); }
void attention_backward(const KernelCall& call) {
  takes_hopper(call) ? hopper::attention_backward(call) : portable_attention_backward(call);
}

}  // namespace sinter::cuda
