// The loop nest of a pointwise call: broadcasting resolved to zero strides, neighbouring dimensions merged where every
// operand allows it. Used by both backends.
#pragma once
#include "core/kernel_call.h"

namespace sinter {

constexpr int max_pointwise_operands = 4;  // out, then up to three inputs

struct PointwiseLayout {
  int rank = 0;  // 0 for a scalar; dims[rank - 1] is the fastest
  int operands = 0;
  int64_t numel = 1;
  int64_t dims[max_rank] = {};
  int64_t strides[max_pointwise_operands][max_rank] = {};

  // Every operand is dense in the same order: one flat loop of numel elements.
  bool flat() const {
    if (rank > 1) return false;
    for (int o = 0; o < operands; ++o)
      if (rank == 1 && strides[o][0] != 1) return false;
    return true;
  }
};

inline PointwiseLayout pointwise_layout(const TensorRef& out, const TensorRef* in, int n_in) {
  PointwiseLayout l;
  l.operands = 1 + n_in;
  for (int d = 0; d < out.rank; ++d) {
    int64_t n = out.dims[d];
    l.numel *= n;
    if (n == 1) continue;
    int64_t s[max_pointwise_operands];
    s[0] = out.strides[d];
    for (int i = 0; i < n_in; ++i) {
      int di = d - (out.rank - in[i].rank);  // inputs align at the right
      s[1 + i] = di < 0 || in[i].dims[di] == 1 ? 0 : in[i].strides[di];
    }
    bool joins = l.rank > 0;
    for (int o = 0; o < l.operands && joins; ++o) joins = l.strides[o][l.rank - 1] == n * s[o];
    if (joins) l.dims[l.rank - 1] *= n;
    else l.dims[l.rank++] = n;
    for (int o = 0; o < l.operands; ++o) l.strides[o][l.rank - 1] = s[o];
  }
  return l;
}

}  // namespace sinter
