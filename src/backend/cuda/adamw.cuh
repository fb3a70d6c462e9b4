// The rule of AdamW for one element, used by every kernel that updates parameters.
#pragma once
#include "core/attrs.h"

namespace sinter::cuda {

// A rule's numbers are worked out in fp64 once per block, its elements in fp32.
struct AdamW {
  AdamWAttrs a;
  struct Numbers {
    float factor, keep, beta1, beta2, rest1, rest2, eps, rate, root;
  };
  // By a block's threads (or some of them, counted from 0).
  __device__ void prepare(const double* state, Numbers& c, unsigned thread = threadIdx.x) const {
    double lr = state[state_lr], step = state[state_step];
    if (thread == 0) {
      c.factor = float(state[state_grad_factor]);
      c.keep = float(1 - lr * a.weight_decay);
      c.beta1 = float(a.beta1), c.rest1 = float(1 - a.beta1);
      c.beta2 = float(a.beta2), c.rest2 = float(1 - a.beta2);
      c.eps = float(a.eps);
      c.rate = float(lr / (1 - pow(a.beta1, step)));
    }
    if (thread == 32) c.root = float(1 / sqrt(1 - pow(a.beta2, step)));  // another warp, at the same time
  }
  __device__ __forceinline__ static void update(const Numbers& c, float& p, float g, float& m, float& v) {
    g *= c.factor;
    m = fmaf(c.beta1, m, c.rest1 * g);
    v = fmaf(c.beta2, v, c.rest2 * g * g);
    // The hardware's root and quotient, each within 2 units in the last place: where a kernel has other work, exact
    // ones would cost more than memory does.
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
    p = c.keep * p - __fdividef(c.rate * m, fmaf(root, c.root, c.eps));
  }
};

}  // namespace sinter::cuda
