// The optimizers: one streaming pass over flat buffers, strip by strip, each number read and written once.
#include "backend/cpu/adamw_rule.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/packed_product.h"
#include "core/folded_update.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t strip = 2048;

// A flat buffer of the call as A, strip by strip; what has another type goes through a spare.
template <class A> struct Flat {
  const TensorRef& ref;
  A* spare;

  SINTER_INLINE Flat(const TensorRef& r, int slot) : ref(r), spare(buffer<A>(slot, strip)) {}
  SINTER_INLINE char* at(int64_t i) const { return ref.as<char>() + i * size_of(ref.dtype); }
  SINTER_INLINE A* read(int64_t i, int64_t n) const {
    if (ref.dtype == dtype_for<A>) return reinterpret_cast<A*>(at(i));
    load_strip(spare, at(i), ref.dtype, n, 1);
    return spare;
  }
  SINTER_INLINE void write(int64_t i, int64_t n, const A* values) const {
    if (static_cast<const void*>(values) != at(i)) store_strip(at(i), ref.dtype, n, 1, values, false);
  }
};

template <class F> SINTER_INLINE void for_each_strip(int64_t n, const F& run) {
  parallel_for((n + strip - 1) / strip, elements_per_range / strip,
               [&](int64_t begin, int64_t end) { run(begin, end); });
}

template <class A> void run_adamw(const KernelCall& call, const double* state) {
  AdamWRule<A> rule(call.attrs.as<AdamWAttrs>(), state);
  int64_t total = numel(call.in[0]);
  bool copies = call.n_in == 6;
  for_each_strip(total, [&](int64_t begin, int64_t end) {
    Flat<A> master(call.in[0], 0), grad(call.in[1], 1), moment1(call.in[2], 2), moment2(call.in[3], 3);
    for (int64_t i = begin * strip, stop = min_of(total, end * strip); i < stop; i += strip) {
      int64_t n = min_of(strip, stop - i);
      A *p = master.read(i, n), *m = moment1.read(i, n), *v = moment2.read(i, n);
      const A* g = grad.read(i, n);
      update_row(rule, p, g, m, v, n);
      master.write(i, n, p);
      moment1.write(i, n, m);
      moment2.write(i, n, v);
      if (copies) store_strip(call.in[5].as<char>() + i * size_of(call.in[5].dtype), call.in[5].dtype, n, 1, p, false);
    }
  });
}

template <class A> void run_sgd(const KernelCall& call, const double* state) {
  const auto& attrs = call.attrs.as<SgdAttrs>();
  A factor = A(state[state_grad_factor]), decay = A(attrs.weight_decay), lr = A(state[state_lr]);
  bool has_momentum = attrs.momentum != 0 && call.in[2].data;
  A momentum = state[state_step] == 1 ? A(0) : A(attrs.momentum);
  bool first = state[state_step] == 1;
  int64_t total = numel(call.in[0]);
  bool copies = call.n_in == 5;
  for_each_strip(total, [&](int64_t begin, int64_t end) {
    Flat<A> master(call.in[0], 0), grad(call.in[1], 1), velocity(call.in[2], 2);
    for (int64_t i = begin * strip, stop = min_of(total, end * strip); i < stop; i += strip) {
      int64_t n = min_of(strip, stop - i);
      A* p = master.read(i, n);
      const A* g = grad.read(i, n);
      A* b = velocity.spare;
      if (has_momentum) b = velocity.read(i, n);
      bool fresh = first || !has_momentum;  // what the buffer holds does not count, and may be NaN
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        A gj = g[j] * factor + decay * p[j];
        A bj = fresh ? gj : momentum * b[j] + gj;
        b[j] = bj;
        p[j] -= lr * bj;
      }
      master.write(i, n, p);
      if (has_momentum) velocity.write(i, n, b);
      if (copies) store_strip(call.in[4].as<char>() + i * size_of(call.in[4].dtype), call.in[4].dtype, n, 1, p, false);
    }
  });
}

}  // namespace

void prepare_step(const KernelCall& call) {
  const auto& attrs = call.attrs.as<PrepareStepAttrs>();
  double* state = call.in[0].as<double>();
  double scale = state[state_loss_scale], factor = 1;
  bool skip = false;
  if (call.n_in > 1) {
    double norm = __builtin_sqrt(call.in[1].as<double>()[0]) / scale;
    skip = !__builtin_isfinite(norm);
    if (attrs.max_norm > 0) factor = min_of(1.0, attrs.max_norm / (norm + 1e-6));
    state[state_grad_norm] = norm;
  }
  state[state_skip] = skip ? 1 : 0;
  state[state_grad_factor] = factor / scale;
  if (skip) state[state_skipped] += 1;
  else state[state_step] += 1;
  if (!attrs.dynamic_scale) return;
  state[state_good_steps] = skip ? 0 : state[state_good_steps] + 1;
  if (skip) {
    state[state_loss_scale] = scale * attrs.backoff;
  } else if (state[state_good_steps] >= double(attrs.growth_interval)) {
    state[state_loss_scale] = min_of(scale * attrs.growth, 0x1p24);
    state[state_good_steps] = 0;
  }
}

void adamw(const KernelCall& call) {
  const double* state = call.in[4].as<double>();
  if (state[state_skip] != 0) return;
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { run_adamw<A>(call, state); });
}

void adamw_product(const KernelCall& call) {
  const TensorRef& state = call.in[0];
  if (state.as<double>()[state_skip] != 0) return;
  const auto& attrs = call.attrs.as<AdamWProductAttrs>();
  for (int i = 0; i < folded_weights(call); ++i) {
    const TensorRef* of = &call.in[folded_input(i, folded_dy)];
    TensorRef gradient = of[folded_master];
    gradient.data = call.workspace;
    int64_t bytes = numel(gradient) * size_of(gradient.dtype);
    KernelCall product{};
    product.in = of, product.n_in = 2;  // dy and x
    product.out = &gradient, product.n_out = 1;
    product.attrs = Attrs::of(MatmulAttrs{true, false, true, true});
    MatmulProblem p;
    cpu::problem_of(p, product);
    if (of[folded_dy].dtype == DType::f32 && is_packed(p) && !has_copy(call, i)) {
      TileUpdate update{{attrs.rule, state.as<double>()},
                        of[folded_master].as<float>(),
                        of[folded_m].as<float>(),
                        of[folded_v].as<float>()};
      packed_product(p, false, static_cast<float*>(call.workspace) + (stores_packed_sums(p.k) ? numel(gradient) : 0),
                     &update);
      continue;
    }
    product.workspace = static_cast<char*>(call.workspace) + bytes;
    product.workspace_bytes = call.workspace_bytes - bytes;
    matmul(product);
    KernelCall update{};
    const TensorRef operands[] = {of[folded_master], gradient, of[folded_m],
                                  of[folded_v],      state,    has_copy(call, i) ? of[folded_copy] : TensorRef{}};
    update.in = operands, update.n_in = has_copy(call, i) ? 6 : 5;
    update.attrs = Attrs::of(attrs.rule);
    adamw(update);
  }
}

void sgd(const KernelCall& call) {
  const double* state = call.in[3].as<double>();
  if (state[state_skip] != 0) return;
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { run_sgd<A>(call, state); });
}

}  // namespace sinter::SINTER_CPU_ISA
