// A fused tree of pointwise functions: strips of every value stay in the L1 or L2 cache
// from the first step to the last.
#include "core/fused.h"

#include "backend/cpu/pointwise_functions.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t strip_elements = 512;

template <class A> void run(const KernelCall& call) {
  const FusedProgram& p = *call.attrs.as<FusedAttrs>().program;
  int64_t n = numel(call.out[0]), strips = (n + strip_elements - 1) / strip_elements;
  parallel_for(strips, rows_per_range(strip_elements), [&](int64_t first, int64_t last) {
    A* space = buffer<A>(0, strip_elements * (max_fused_inputs + max_fused_steps));
    const A* values[max_fused_inputs + max_fused_steps];
    for (int64_t s = first; s < last; ++s) {
      int64_t begin = s * strip_elements, length = min_of(strip_elements, n - begin);
      for (int i = 0; i < p.n_in; ++i) {
        const TensorRef& t = call.in[i];
        A* strip = space + i * strip_elements;
        values[i] = strip;
        if (numel(t) == 1 && n > 1) load_strip(strip, t.data, t.dtype, length, 0);
        else if (t.dtype == dtype_for<A>) values[i] = t.as<A>() + begin;
        else load_strip(strip, t.as<char>() + begin * size_of(t.dtype), t.dtype, length, 1);
      }
      for (int k = 0; k < p.n_steps; ++k) {
        const FusedStep& step = p.steps[k];
        A* to = space + (p.n_in + k) * strip_elements;
        const A* in[3] = {values[step.from[0]], values[step.from[1]], values[step.from[2]]};
        StripFunction<A> f = float_function<A>(step.fn);
        if (f) f(to, in[0], in[1], in[2], length, step.affine);
        values[p.n_in + k] = f ? to : in[0];
      }
      for (int j = 0; j < p.n_out; ++j) {
        const TensorRef& t = call.out[j];
        store_strip(t.as<char>() + begin * size_of(t.dtype), t.dtype, length, 1, values[p.out[j]], false);
      }
    }
  });
}

}  // namespace

void fused(const KernelCall& call) {
  bool is_double = false;
  for (int i = 0; i < call.n_in; ++i) is_double = is_double || call.in[i].dtype == DType::f64;
  with_compute_type(is_double, [&]<class A>() { run<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
