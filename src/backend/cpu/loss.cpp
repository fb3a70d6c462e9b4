// Cross-entropy on rows of logits. Forward reads each row once from memory; backward reuses its logsumexp. Together
// they turn a row into its gradient while it is in the cache.
#include "backend/cpu/reduce.h"
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// Small enough that the second look at a block (maximum first, then exponentials) finds it in the L1 cache.
constexpr int64_t block = 4096;

template <class A> A log_sum_exp(const A* x, int64_t n) {
  A max = -A(__builtin_inf()), sum = 0;
  for (int64_t i = 0; i < n; i += block) {
    const A* p = x + i;
    int64_t m = min_of(block, n - i);
    A higher = lane_max(
        m, [&](int64_t j) { return p[j]; }, max);
    if (higher > max) {
      sum *= exp_of(max - higher);
      max = higher;
    }
    A more = 0;
#pragma omp simd reduction(+ : more)
    for (int64_t j = 0; j < m; ++j) more += exp_of(p[j] - max);
    sum += more;
  }
  return max + log_of(sum);
}

// (softmax(logits) − onehot(target)) · factor; d may be x.
template <class A> SINTER_INLINE void gradient(A* d, const A* x, int64_t n, A lse, A factor, int64_t target) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) d[j] = exp_of(x[j] - lse) * factor;
  d[target] -= factor;
}

template <class A> void forward(const KernelCall& call) {
  Rows logits = rows_of(call.in[0]);
  bool in_place = call.n_in > 2;
  A factor = in_place ? A(scalar_at(call.in[2], 0) / double(logits.n)) : A(0);
  double* loss = static_cast<double*>(call.workspace);  // a row each
  parallel_for(logits.n, rows_per_range(logits.d), [&](int64_t begin, int64_t end) {
    A *spare = buffer<A>(0, logits.d), *spare_d = buffer<A>(1, logits.d);
    for (int64_t i = begin; i < end; ++i) {
      const A* x = read_row(logits, i, spare);
      A lse = log_sum_exp(x, logits.d);
      int64_t target = index_at(call.in[1], i);
      loss[i] = double(lse) - double(x[target]);
      if (!in_place) {
        set_scalar(call.out[1], i, double(lse));
        continue;
      }
      A* d = open_row(logits, i, spare_d, false);
      gradient(d, x, logits.d, lse, factor, target);
      close_row(logits, i, d, false);
    }
  });
  double sum = 0;
  for (int64_t i = 0; i < logits.n; ++i) sum += loss[i];
  set_scalar(call.out[0], 0, sum / double(logits.n));
}

template <class A> void backward(const KernelCall& call) {
  Rows logits = rows_of(call.in[0]), dlogits = rows_of(call.out[0]);
  A factor = A(scalar_at(call.in[3], 0) / double(logits.n));
  parallel_for(logits.n, rows_per_range(logits.d), [&](int64_t begin, int64_t end) {
    A *spare = buffer<A>(0, logits.d), *spare_d = buffer<A>(1, logits.d);
    for (int64_t i = begin; i < end; ++i) {
      const A* x = read_row(logits, i, spare);
      A* d = open_row(dlogits, i, spare_d, false);
      gradient(d, x, logits.d, A(scalar_at(call.in[2], i)), factor, index_at(call.in[1], i));
      close_row(dlogits, i, d, false);
    }
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void cross_entropy(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void cross_entropy_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
