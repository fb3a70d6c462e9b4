// AdamW for one number. optim.cpp goes through flat buffers with it, packed_product.cpp through the tiles of a gradient that is never stored.
#pragma once
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {

template <class A> struct AdamWRule {
  A factor, keep, eps, beta1, beta2, rest1, rest2, rate, root;

  SINTER_INLINE AdamWRule(const AdamWAttrs& attrs, const double* state)
      : factor(A(state[state_grad_factor])),
        keep(A(1 - state[state_lr] * attrs.weight_decay)),
        eps(A(attrs.eps)),
        beta1(A(attrs.beta1)),
        beta2(A(attrs.beta2)),
        rest1(A(1 - attrs.beta1)),
        rest2(A(1 - attrs.beta2)),
        rate(A(state[state_lr] / (1 - __builtin_pow(attrs.beta1, state[state_step])))),
        root(A(1 / __builtin_sqrt(1 - __builtin_pow(attrs.beta2, state[state_step])))) {}

  // Of numbers or of vectors of them.
  template <class X> SINTER_INLINE void move(X& m, X& v, X gradient) const {
    X g = gradient * factor;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
  }
  SINTER_INLINE void update(A& p, A gradient, A& m, A& v) const {
    move(m, v, gradient);
    p = keep * p - rate * m / (sqrt_of(v) * root + eps);
  }
};

}  // namespace sinter::SINTER_CPU_ISA
