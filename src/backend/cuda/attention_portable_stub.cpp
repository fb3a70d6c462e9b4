#include "backend/cuda/attention.h"
#include "backend/cuda/runtime.h"
namespace sinter::cuda {
void portable_attention(const KernelCall&) { refuse("attention", "stub"); }
void portable_attention_backward(const KernelCall&) { refuse("attention", "stub"); }
}
