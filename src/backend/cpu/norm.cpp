// RMS and layer normalisation over rows. Statistics are per row; weight gradients are summed over the rows of a group
// in the workspace, then over the groups in order (workspace::norm_groups), so they do not depend on the threads.
#include "backend/cpu/reduce.h"
#include "backend/cpu/strips.h"
#include "backend/workspace.h"
#include "core/half.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// The naive sum in x's own 16-bit type: it stalls as soon as the total is 2^8 (bf16) or
// 2^11 (fp16) times the next term.
template <class A, class F> A low_precision_sum(DType type, int64_t d, const F& term) {
  float total = 0;
  for (int64_t j = 0; j < d; ++j) {
    float sum = total + float(term([j](const A* p) SINTER_LAMBDA_INLINE { return p[j]; }));
    total = type == DType::bf16 ? to_float(to_bf16(sum)) : to_float(to_f16(sum));
  }
  return A(total);
}

template <class A> struct Statistics {
  bool low;
  DType type;

  Statistics(const KernelCall& call, const Rows& x)
      : low(call.attrs.as<NormAttrs>().low_precision_statistics && is_16bit(x.dtype)), type(x.dtype) {}

  template <class F> SINTER_INLINE A mean(int64_t d, const F& term) const {
    return (low ? low_precision_sum<A>(type, d, term) : lane_sum<A>(d, term)) / A(d);
  }
};

template <class A> SINTER_INLINE A rroot_of(A mean_square, double eps) { return A(1) / sqrt_of(mean_square + A(eps)); }

template <class A> void rms_forward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), y = rows_of(call.out[0]);
  const A* w = whole<A>(call.in[1], 0);
  Statistics<A> statistics(call, x);
  double eps = call.attrs.as<NormAttrs>().eps;
  parallel_for(x.n, rows_per_range(x.d), [&](int64_t begin, int64_t end) {
    A *spare_x = buffer<A>(0, x.d), *spare_y = buffer<A>(1, x.d);
    for (int64_t i = begin; i < end; ++i) {
      const A* px = read_row(x, i, spare_x);
      A* py = open_row(y, i, spare_y, false);
      A r = rroot_of(statistics.mean(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return at(px) * at(px); }), eps);
#pragma omp simd
      for (int64_t j = 0; j < x.d; ++j) py[j] = px[j] * r * w[j];
      close_row(y, i, py, false);
      set_scalar(call.out[1], i, double(r));
    }
  });
}

template <class A> void layer_forward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), y = rows_of(call.out[0]);
  const A *w = whole<A>(call.in[1], 0), *b = whole<A>(call.in[2], 1);
  Statistics<A> statistics(call, x);
  double eps = call.attrs.as<NormAttrs>().eps;
  parallel_for(x.n, rows_per_range(x.d), [&](int64_t begin, int64_t end) {
    A *spare_x = buffer<A>(0, x.d), *spare_y = buffer<A>(1, x.d);
    for (int64_t i = begin; i < end; ++i) {
      const A* px = read_row(x, i, spare_x);
      A* py = open_row(y, i, spare_y, false);
      A mean = statistics.mean(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return at(px); });
      A r = rroot_of(
          statistics.mean(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return (at(px) - mean) * (at(px) - mean); }), eps);
#pragma omp simd
      for (int64_t j = 0; j < x.d; ++j) py[j] = (px[j] - mean) * r * w[j] + b[j];
      close_row(y, i, py, false);
      set_scalar(call.out[1], i, double(mean));
      set_scalar(call.out[2], i, double(r));
    }
  });
}

// Rows in fixed groups: body(row, sums, spare...) adds the row's part to the group's sums ([d] for each of `outputs`
// weight gradients), which are then added up into call.out[1...].
template <class A, class F>
void backward_by_groups(const KernelCall& call, int64_t rows, int64_t d, int outputs, const F& body) {
  int64_t groups = min_of(rows, workspace::norm_groups);
  A* sums = static_cast<A*>(call.workspace);
  parallel_for(groups, max_of<int64_t>(1, elements_per_range * groups / max_of<int64_t>(1, rows * d)),
               [&](int64_t begin, int64_t end) {
                 A* spare[3] = {buffer<A>(0, d), buffer<A>(1, d), buffer<A>(2, d)};
                 for (int64_t g = begin; g < end; ++g) {
                   A* mine = sums + g * outputs * d;
                   for (int64_t j = 0; j < outputs * d; ++j) mine[j] = 0;
                   for (int64_t i = g * rows / groups; i < (g + 1) * rows / groups; ++i) body(i, mine, spare);
                 }
               });
  for (int o = 0; o < outputs; ++o) {
    const TensorRef& dw = call.out[1 + o];
    parallel_for(d, 64, [&](int64_t begin, int64_t end) {
      int64_t n = end - begin;
      A* total = buffer<A>(0, n);
      for (int64_t j = 0; j < n; ++j) total[j] = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const A* part = sums + (g * outputs + o) * d + begin;
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) total[j] += part[j];
      }
      store_strip(dw.as<char>() + begin * size_of(dw.dtype), dw.dtype, n, 1, total, call.accumulates(1 + o));
    });
  }
}

// With g = w∘dy:  dx = r·g − x·r³·mean(x∘g),  dw = Σ dy∘x·r.
template <class A> void rms_backward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), dy = rows_of(call.in[3]), dx = rows_of(call.out[0]);
  const A* w = whole<A>(call.in[1], 0);
  bool accumulate = call.accumulates(0);
  backward_by_groups<A>(call, x.n, x.d, 1, [&](int64_t i, A* dw, A* const* spare) {
    const A *px = read_row(x, i, spare[0]), *pdy = read_row(dy, i, spare[1]);
    A* pdx = open_row(dx, i, spare[2], accumulate);
    A r = A(scalar_at(call.in[2], i));
    A c = lane_sum<A>(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return at(px) * at(w) * at(pdy); }) / A(x.d) * r * r * r;
#pragma omp simd
    for (int64_t j = 0; j < x.d; ++j) {
      A xj = px[j], dyj = pdy[j];
      dw[j] += dyj * (xj * r);
      pdx[j] = r * w[j] * dyj - xj * c;
    }
    close_row(dx, i, pdx, accumulate);
  });
}

// With x̂ = (x − mean)·r and g = w∘dy:  dx = r·(g − mean(g) − x̂·mean(g∘x̂)),  dw = Σ dy∘x̂,  db = Σ dy.
template <class A> void layer_backward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), dy = rows_of(call.in[4]), dx = rows_of(call.out[0]);
  const A* w = whole<A>(call.in[1], 0);
  bool accumulate = call.accumulates(0);
  backward_by_groups<A>(call, x.n, x.d, 2, [&](int64_t i, A* dw, A* const* spare) {
    const A *px = read_row(x, i, spare[0]), *pdy = read_row(dy, i, spare[1]);
    A *pdx = open_row(dx, i, spare[2], accumulate), *db = dw + x.d;
    A mean = A(scalar_at(call.in[2], i)), r = A(scalar_at(call.in[3], i));
    A mean_g = lane_sum<A>(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return at(w) * at(pdy); }) / A(x.d);
    A mean_gx =
        lane_sum<A>(x.d, [&](auto at) SINTER_LAMBDA_INLINE { return at(w) * at(pdy) * (at(px) - mean); }) * r / A(x.d);
#pragma omp simd
    for (int64_t j = 0; j < x.d; ++j) {
      A dyj = pdy[j], normalised = (px[j] - mean) * r;
      dw[j] += dyj * normalised;
      db[j] += dyj;
      pdx[j] = r * (w[j] * dyj - mean_g - normalised * mean_gx);
    }
    close_row(dx, i, pdx, accumulate);
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void rms_norm(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { rms_forward<A>(call); });
}
void rms_norm_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { rms_backward<A>(call); });
}
void layer_norm(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { layer_forward<A>(call); });
}
void layer_norm_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { layer_backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
