// Softmax over rows, causal or not. Columns a causal row cannot see cost nothing but their zeros.
#include "backend/cpu/reduce.h"
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// How many columns row i of all the matrices sees.
struct Sight {
  bool causal;
  int64_t offset, queries, keys;

  explicit Sight(const KernelCall& call) {
    const auto& attrs = call.attrs.as<SoftmaxAttrs>();
    const TensorRef& s = call.in[0];
    causal = attrs.causal;
    offset = attrs.causal_offset;
    keys = s.rank > 0 ? s.dims[s.rank - 1] : 1;
    queries = s.rank > 1 ? s.dims[s.rank - 2] : 1;
  }
  SINTER_INLINE int64_t of(int64_t row) const {
    return causal ? max_of<int64_t>(0, min_of(keys, row % queries + offset + 1)) : keys;
  }
};

// Rows that lie in matrices of `queries` rows; the dimensions before them fold into one.
struct Matrices {
  Rows rows;
  int64_t queries, stride;  // between matrices

  explicit Matrices(const TensorRef& t) : rows(rows_of(t)), queries(t.rank > 1 ? t.dims[t.rank - 2] : 1), stride(0) {
    if (t.rank > 1) rows.stride = t.strides[t.rank - 2];
    for (int d = 0; d + 2 < t.rank; ++d)
      if (t.dims[d] != 1) stride = t.strides[d];
  }
  // The i-th of all rows, alone.
  SINTER_INLINE Rows row(int64_t i) const {
    Rows r = rows;
    r.data += (i / queries * stride + i % queries * rows.stride) * size_of(r.dtype);
    return r;
  }
};

template <class A> SINTER_INLINE void clear(A* p, int64_t n) { __builtin_memset(p, 0, size_t(n) * sizeof(A)); }

// out[j] = exp(scale·x[j] − max). A rest that fills no vector is done as a padded one: single exponentials are slow.
template <class A> SINTER_INLINE void exp_row(A* out, const A* x, int64_t n, A scale, A max) {
  int64_t whole = n / lanes<A> * lanes<A>, rest = n - whole;
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) out[j] = exp_of(scale * x[j] - max);
  if (rest == 0) return;
  A tail[lanes<A>] = {};
  for (int64_t j = 0; j < rest; ++j) tail[j] = scale * x[whole + j] - max;
#pragma omp simd
  for (int64_t j = 0; j < lanes<A>; ++j) tail[j] = exp_of(tail[j]);
  for (int64_t j = 0; j < rest; ++j) out[whole + j] = tail[j];
}

template <class A> void forward(const KernelCall& call) {
  Matrices scores(call.in[0]), probabilities(call.out[0]);
  Sight sight(call);
  A scale = A(call.attrs.as<SoftmaxAttrs>().scale);
  int64_t columns = sight.keys;
  parallel_for(scores.rows.n, rows_per_range(columns), [&](int64_t begin, int64_t end) {
    A *spare_s = buffer<A>(0, columns), *spare_p = buffer<A>(1, columns);
    for (int64_t i = begin; i < end; ++i) {
      int64_t n = sight.of(i);
      Rows seen = scores.row(i), p = probabilities.row(i);
      seen.d = n;
      const A* ps = read_row(seen, 0, spare_s);
      A* pp = open_row(p, 0, spare_p, false);
      A max = lane_max(
          n, [&](int64_t j) { return scale * ps[j]; }, -A(__builtin_inf()));
      // Whole vectors, over some masked columns too where there are any; what they give is cleared before it counts.
      int64_t padded = min_of(columns, (n + lanes<A> - 1) / lanes<A> * lanes<A>);
      exp_row(pp, ps, padded, scale, max);
      clear(pp + n, columns - n);
      A sum = lane_sum<A>(padded, [&](auto at) SINTER_LAMBDA_INLINE { return at(pp); });
      A factor = A(1) / sum;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) pp[j] *= factor;
      close_row(p, 0, pp, false);
    }
  });
}

template <class A> void backward(const KernelCall& call) {
  Matrices probabilities(call.in[0]), gradient(call.in[1]), result(call.out[0]);
  Sight sight(call);
  A scale = A(call.attrs.as<SoftmaxAttrs>().scale);
  bool accumulate = call.accumulates(0);
  int64_t columns = sight.keys;
  parallel_for(probabilities.rows.n, rows_per_range(columns), [&](int64_t begin, int64_t end) {
    A *spare_p = buffer<A>(0, columns), *spare_dp = buffer<A>(1, columns), *spare_ds = buffer<A>(2, columns);
    for (int64_t i = begin; i < end; ++i) {
      int64_t n = sight.of(i);
      Rows seen_p = probabilities.row(i), seen_dp = gradient.row(i), written = result.row(i);
      seen_p.d = seen_dp.d = n;
      const A *pp = read_row(seen_p, 0, spare_p), *pdp = read_row(seen_dp, 0, spare_dp);
      A* pds = open_row(written, 0, spare_ds, accumulate);
      A sum = lane_sum<A>(n, [&](auto at) SINTER_LAMBDA_INLINE { return at(pp) * at(pdp); });
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) pds[j] = scale * pp[j] * (pdp[j] - sum);
      if (accumulate) written.d = n;
      else clear(pds + n, columns - n);
      close_row(written, 0, pds, accumulate);
    }
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void softmax(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void softmax_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
