// Attention's probabilities p = softmax(scale · q·kᵀ), stored, and the gradient of their scores: the reference for the CUDA kernels. A compiled
// step has them on CUDA only; here the products of OpenBLAS and softmax are faster.
#include "backend/cpu/attention_shape.h"
#include "backend/cpu/reduce.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A> SINTER_INLINE const A* head_row(const TensorRef& t, int64_t b, int64_t h, int64_t i, A* spare) {
  load_strip(spare, row_at(t, b, h, i), t.dtype, t.dims[3], t.strides[3]);
  return spare;
}

// row(b, h, i, sees, scores): scores[j] = x_i·y_j for the keys that query i sees, zeros beyond; to be made the result's row, in place.
template <class A, class F> void for_each_row(const KernelCall& call, const TensorRef& out, const F& row) {
  AttentionShape n(call);
  const TensorRef &x = call.in[0], &y = call.in[1];
  parallel_for(n.B * n.H * n.Nq, 1, [&](int64_t begin, int64_t end) {
    A *mine = buffer<A>(0, n.D), *other = buffer<A>(1, n.D), *scores = buffer<A>(2, n.Nk);
    for (int64_t at = begin; at < end; ++at) {
      int64_t i = at % n.Nq, h = at / n.Nq % n.H, b = at / n.Nq / n.H, sees = n.sees(i);
      head_row(x, b, h, i, mine);
      for (int64_t j = 0; j < n.Nk; ++j) {
        if (j < sees) head_row(y, b, h / n.group, j, other);
        scores[j] =
            j < sees ? lane_sum<A>(n.D, [&](auto at_) SINTER_LAMBDA_INLINE { return at_(mine) * at_(other); }) : 0;
      }
      row(b, h, i, sees, scores, mine);
      store_strip(row_at(out, b, h, i), out.dtype, n.Nk, out.strides[3], scores, false);
    }
  });
}

template <class A> void forward(const KernelCall& call) {
  A scale = A(call.attrs.as<AttentionAttrs>().scale);
  for_each_row<A>(call, call.out[0], [&](int64_t, int64_t, int64_t, int64_t sees, A* s, const A*) {
    A max = lane_max(
        sees, [&](int64_t j) { return scale * s[j]; }, -A(__builtin_inf()));
    A sum = 0;
    for (int64_t j = 0; j < sees; ++j) sum += s[j] = exp_of(scale * s[j] - max);
    for (int64_t j = 0; j < sees; ++j) s[j] /= sum;
  });
}

template <class A> void backward(const KernelCall& call) {
  const TensorRef &o = call.in[2], &p = call.in[3];
  int64_t keys = p.dims[3], D = o.dims[3];
  A scale = A(call.attrs.as<AttentionAttrs>().scale);
  for_each_row<A>(
      call, call.out[0], [&](int64_t b, int64_t h, int64_t i, int64_t sees, A* dp, const A* grad) SINTER_LAMBDA_INLINE {
        const A *out = head_row(o, b, h, i, buffer<A>(1, D)), *pr = head_row(p, b, h, i, buffer<A>(3, keys));
        A mean = lane_sum<A>(D, [&](auto at) SINTER_LAMBDA_INLINE { return at(grad) * at(out); });
        for (int64_t j = 0; j < sees; ++j) dp[j] = scale * pr[j] * (dp[j] - mean);
      });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void attention_weights(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void attention_weights_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
