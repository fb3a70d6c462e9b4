// What the CPU kernels for attention share: sizes, the mask, and where things lie.
#pragma once
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {

void attention_tiled(const KernelCall& call);
void attention_tiled_backward(const KernelCall& call);

namespace {

struct AttentionShape {
  int64_t B, H, Hkv, Nq, Nk, D;
  int64_t group;  // query heads per key/value head
  bool causal;
  int64_t offset;

  explicit AttentionShape(const KernelCall& call) : AttentionShape(call, call.attrs.as<AttentionAttrs>()) {}
  template <class Mask> AttentionShape(const KernelCall& call, const Mask& a) {
    const TensorRef &q = call.in[0], &k = call.in[1];
    B = q.dims[0], H = q.dims[1], Hkv = k.dims[1], Nq = q.dims[2], Nk = k.dims[2], D = q.dims[3];
    group = Hkv ? H / Hkv : 1;
    causal = a.causal, offset = a.causal_offset;
  }
  // How many keys query i sees: the first so many.
  SINTER_INLINE int64_t sees(int64_t i) const { return causal ? max_of<int64_t>(0, min_of(Nk, i + offset + 1)) : Nk; }
};

SINTER_INLINE char* row_at(const TensorRef& t, int64_t b, int64_t h, int64_t i) {
  return static_cast<char*>(t.data) + (b * t.strides[0] + h * t.strides[1] + i * t.strides[2]) * size_of(t.dtype);
}
// L of a query.
template <class A> SINTER_INLINE A& stat_at(const TensorRef& t, int64_t b, int64_t h, int64_t i) {
  return t.as<A>()[b * t.strides[0] + h * t.strides[1] + i * t.strides[2]];
}

}  // namespace
}  // namespace sinter::SINTER_CPU_ISA
