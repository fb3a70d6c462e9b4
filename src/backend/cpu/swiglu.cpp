// The gate of the feed-forward layer: x holds gate and value side by side in each row.
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A> void forward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), y = rows_of(call.out[0]);
  parallel_for(y.n, rows_per_range(y.d), [&](int64_t begin, int64_t end) {
    A *spare_x = buffer<A>(0, x.d), *spare_y = buffer<A>(1, y.d);
    for (int64_t i = begin; i < end; ++i) {
      const A *gate = read_row(x, i, spare_x), *value = gate + y.d;
      A* out = open_row(y, i, spare_y, false);
#pragma omp simd
      for (int64_t j = 0; j < y.d; ++j) out[j] = gate[j] * sigmoid_of(gate[j]) * value[j];
      close_row(y, i, out, false);
    }
  });
}

template <class A> void backward(const KernelCall& call) {
  Rows x = rows_of(call.in[0]), dy = rows_of(call.in[1]), dx = rows_of(call.out[0]);
  parallel_for(dy.n, rows_per_range(dy.d), [&](int64_t begin, int64_t end) {
    A *spare_x = buffer<A>(0, x.d), *spare_dy = buffer<A>(1, dy.d), *spare_dx = buffer<A>(2, x.d);
    for (int64_t i = begin; i < end; ++i) {
      const A *gate = read_row(x, i, spare_x), *value = gate + dy.d, *pdy = read_row(dy, i, spare_dy);
      A *dgate = open_row(dx, i, spare_dx, false), *dvalue = dgate + dy.d;
#pragma omp simd
      for (int64_t j = 0; j < dy.d; ++j) {
        A g = gate[j], v = value[j], d = pdy[j], s = sigmoid_of(g);
        dgate[j] = d * v * s * (A(1) + g * (A(1) - s));
        dvalue[j] = d * g * s;
      }
      close_row(dx, i, dgate, false);
    }
  });
}

}  // namespace

void swiglu(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { forward<A>(call); });
}
void swiglu_backward(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
