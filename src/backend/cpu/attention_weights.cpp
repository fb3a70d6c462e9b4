// Attention that stores its probabilities, p = softmax(scale · q·kᵀ) and o = p·v, and the gradients of its scores
// and queries: the reference for the CUDA kernels. A compiled step has them on CUDA only; here OpenBLAS's
// products and softmax are faster.
#include "backend/cpu/attention_shape.h"
#include "backend/cpu/reduce.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A> SINTER_INLINE const A* head_row(const TensorRef& t, int64_t b, int64_t h, int64_t i, A* spare) {
  load_strip(spare, row_at(t, b, h, i), t.dtype, t.dims[3], t.strides[3]);
  return spare;
}
template <class A> SINTER_INLINE void store_row(const TensorRef& t, int64_t b, int64_t h, int64_t i, const A* x) {
  store_strip(row_at(t, b, h, i), t.dtype, t.dims[3], t.strides[3], x, false);
}

// row(b, h, i, sees, scores, x_i): scores[j] = x_i·y_j for the keys that query i sees, zeros beyond.
template <class A, class F> void for_each_row(const KernelCall& call, const F& row) {
  AttentionShape n(call, call.attrs.as<AttentionWeightsAttrs>());
  const TensorRef &x = call.in[0], &y = call.in[1];
  parallel_for(n.B * n.H * n.Nq, 1, [&](int64_t begin, int64_t end) {
    A *mine = buffer<A>(0, n.D), *other = buffer<A>(1, n.D), *scores = buffer<A>(2, n.Nk);
    for (int64_t at = begin; at < end; ++at) {
      int64_t i = at % n.Nq, h = at / n.Nq % n.H, b = at / n.Nq / n.H, sees = n.sees(i);
      head_row(x, b, h, i, mine);
      for (int64_t j = 0; j < n.Nk; ++j) {
        if (j < sees) head_row(y, b, h / n.group, j, other);
        scores[j] = j < sees ? lane_sum<A>(n.D, [&](auto of) SINTER_LAMBDA_INLINE { return of(mine) * of(other); }) : 0;
      }
      row(b, h, i, sees, scores, mine);
    }
  });
}

// Row i of weights·y to `out`.
template <class A>
void store_product(const TensorRef& out, const TensorRef& y, const A* weights, int64_t b, int64_t h, int64_t i,
                   int64_t sees) {
  int64_t D = out.dims[3], group = out.dims[1] / y.dims[1];
  A *sum = buffer<A>(3, D), *value = buffer<A>(1, D);
  for (int64_t d = 0; d < D; ++d) sum[d] = 0;
  for (int64_t j = 0; j < sees; ++j) {
    head_row(y, b, h / group, j, value);
    for (int64_t d = 0; d < D; ++d) sum[d] += weights[j] * value[d];
  }
  store_row(out, b, h, i, sum);
}

template <class A> void forward(const KernelCall& call) {
  A scale = A(call.attrs.as<AttentionWeightsAttrs>().scale);
  for_each_row<A>(call, [&](int64_t b, int64_t h, int64_t i, int64_t sees, A* s, const A*) {
    A max = lane_max(
        sees, [&](int64_t j) { return scale * s[j]; }, -A(__builtin_inf()));
    A sum = 0;
    for (int64_t j = 0; j < sees; ++j) sum += s[j] = exp_of(scale * s[j] - max);
    for (int64_t j = 0; j < sees; ++j) s[j] /= sum;
    store_row(call.out[0], b, h, i, s);
    store_product(call.out[1], call.in[2], s, b, h, i, sees);
  });
}

template <class A> void backward(const KernelCall& call) {
  const TensorRef &o = call.in[2], &p = call.in[3];
  A scale = A(call.attrs.as<AttentionWeightsAttrs>().scale);
  for_each_row<A>(call, [&](int64_t b, int64_t h, int64_t i, int64_t sees, A* dp, const A* grad) {
    const A *out = head_row(o, b, h, i, buffer<A>(1, o.dims[3])),
            *weight = head_row(p, b, h, i, buffer<A>(3, p.dims[3]));
    A mean = lane_sum<A>(o.dims[3], [&](auto of) SINTER_LAMBDA_INLINE { return of(grad) * of(out); });
    for (int64_t j = 0; j < sees; ++j) dp[j] = scale * weight[j] * (dp[j] - mean);
    store_row(call.out[0], b, h, i, dp);
    store_product(call.out[1], call.in[4], dp, b, h, i, sees);
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
