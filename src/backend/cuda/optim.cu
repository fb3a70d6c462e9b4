// The optimizer: gradient norm, the step's numbers, AdamW and SGD over flat buffers. Learning rate, step count and loss
// scale are read from device memory, so that nothing waits for the host and a replayed step is a fresh one.
#include "backend/cuda/adamw.cuh"
#include "backend/cuda/device_math.cuh"
#include "backend/workspace.h"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;

// ---- sum of squares. Speed of light: one read of x. In fp64: a gradient of 1e20 is a fact to report, not an infinity.

template <bool Vectors>
__global__ void __launch_bounds__(threads) squares_part(const void* x, DType type, int64_t n, double* partial) {
  __shared__ double slots[threads / 32];
  constexpr int unroll = 4;
  int64_t step = int64_t(gridDim.x) * threads, i = int64_t(blockIdx.x) * threads + threadIdx.x;
  double sum = 0;
  if constexpr (Vectors) {
    int64_t groups = n / 4;
    auto add = [&](const Raw4& raw) {
      float v[4];
      unpack4(raw, type, v);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum = fma(double(v[k]), double(v[k]), sum);
    };
    int64_t g = i;
    for (; g + (unroll - 1) * step < groups; g += unroll * step) {
      Raw4 raw[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) raw[u] = load_raw4(x, type, g + u * step);
#pragma unroll
      for (int u = 0; u < unroll; ++u) add(raw[u]);
    }
    for (; g < groups; g += step) add(load_raw4(x, type, g));
    i += 4 * groups;  // the tail of fewer than four elements
  }
  for (; i < n; i += step) {
    double v = load_float(x, type, i);
    sum = fma(v, v, sum);
  }
  sum = block_reduce<threads>(sum, Add{}, slots);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(1024) squares_total(const double* partial, int count, double* out) {
  __shared__ double slots[32];
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += 1024) sum += partial[i];
  sum = block_reduce<1024>(sum, Add{}, slots);
  if (threadIdx.x == 0) *out = sum;
}

__global__ void prepare(double* state, const double* sum_squares, PrepareStepAttrs a) {
  double scale = state[state_loss_scale], factor = 1;
  bool skip = false;
  if (sum_squares) {
    double norm = sqrt(*sum_squares) / scale;
    skip = !isfinite(norm);
    if (a.max_norm > 0) factor = fmin(1.0, a.max_norm / (norm + 1e-6));
    state[state_grad_norm] = norm;
  }
  state[state_skip] = skip;
  state[state_grad_factor] = factor / scale;
  if (skip) state[state_skipped] += 1;
  else state[state_step] += 1;
  if (!a.dynamic_scale) return;
  double good = skip ? 0 : state[state_good_steps] + 1;
  if (skip) {
    scale *= a.backoff;
  } else if (good >= double(a.growth_interval)) {
    scale = fmin(scale * a.growth, 16777216.0);
    good = 0;
  }
  state[state_good_steps] = good;
  state[state_loss_scale] = scale;
}

// ---- updates. Speed of light per element (AdamW, fp32 gradients): 16 bytes read, 12 written, and 2 for the copy. ----

struct UpdateArgs {
  float* master;
  const void* grad;
  float *m, *v;  // null where the rule has none
  const double* state;
  void* copy;  // null: no 16-bit copy
  int64_t n;
  DType grad_type, copy_type;
};

// The rules: adamw.cuh says how they are written.
struct Sgd {
  SgdAttrs a;
  bool has_momentum;
  struct Numbers {
    float factor, decay, momentum, lr;
    bool fresh;  // what the momentum buffer holds does not count, and may be NaN
  };
  __device__ void prepare(const double* state, Numbers& c) const {
    if (threadIdx.x == 0)
      c = {float(state[state_grad_factor]), float(a.weight_decay), float(a.momentum), float(state[state_lr]),
           !has_momentum || state[state_step] == 1};
  }
  __device__ __forceinline__ static void update(const Numbers& c, float& p, float g, float& m, float&) {
    g = fmaf(c.decay, p, g * c.factor);
    m = c.fresh ? g : fmaf(c.momentum, m, g);
    p -= c.lr * m;
  }
};

template <class Rule>
__global__ void __launch_bounds__(threads, 4)
    update_parameters(const __grid_constant__ UpdateArgs a, Rule rule, bool vectors) {
  __shared__ typename Rule::Numbers shared;
  if (a.state[state_skip] != 0) return;
  rule.prepare(a.state, shared);
  __syncthreads();
  typename Rule::Numbers c = shared;
  int64_t step = int64_t(gridDim.x) * threads, first = int64_t(blockIdx.x) * threads + threadIdx.x;
  int64_t groups = vectors ? a.n / 4 : 0;
  constexpr float4 none = {0, 0, 0, 0};
  for (int64_t g = first; g < groups; g += step) {
    Raw4 raw = load_raw4(a.grad, a.grad_type, g);
    float4 p4 = reinterpret_cast<float4*>(a.master)[g];
    float4 m4 = a.m ? reinterpret_cast<float4*>(a.m)[g] : none;
    float4 v4 = a.v ? reinterpret_cast<float4*>(a.v)[g] : none;
    float grad[4], p[4] = {p4.x, p4.y, p4.z, p4.w}, m[4] = {m4.x, m4.y, m4.z, m4.w}, v[4] = {v4.x, v4.y, v4.z, v4.w};
    unpack4(raw, a.grad_type, grad);
#pragma unroll
    for (int i = 0; i < 4; ++i) Rule::update(c, p[i], grad[i], m[i], v[i]);
    reinterpret_cast<float4*>(a.master)[g] = {p[0], p[1], p[2], p[3]};
    if (a.m) reinterpret_cast<float4*>(a.m)[g] = {m[0], m[1], m[2], m[3]};
    if (a.v) reinterpret_cast<float4*>(a.v)[g] = {v[0], v[1], v[2], v[3]};
    if (a.copy) store4(a.copy, a.copy_type, g, p);
  }
  for (int64_t i = 4 * groups + first; i < a.n; i += step) {
    float p = a.master[i], m = a.m ? a.m[i] : 0.0f, v = a.v ? a.v[i] : 0.0f;
    Rule::update(c, p, load_float(a.grad, a.grad_type, i), m, v);
    a.master[i] = p;
    if (a.m) a.m[i] = m;
    if (a.v) a.v[i] = v;
    if (a.copy) store_float(a.copy, a.copy_type, i, p);
  }
}

template <class Rule> void run_update(const char* name, const KernelCall& call, const UpdateArgs& a, const Rule& rule) {
  if (a.n == 0) return;
  bool vectors = aligned(a.master, 16) && aligned(a.m, 16) && aligned(a.v, 16) &&
                 aligned(a.grad, 4 * size_of(a.grad_type)) && aligned(a.copy, 8);
  // As many blocks as run at once: each works out its numbers once, and none is left for a second, emptier wave.
  static const int resident = [] {
    int n = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, update_parameters<Rule>, threads, 0), "occupancy");
    return n * multiprocessors();
  }();
  int64_t blocks = ceil_div(a.n, 4 * threads), most = resident;
  launch(name, update_parameters<Rule>, unsigned(blocks < most ? blocks : most), threads, stream_of(call), a, rule,
         vectors);
}

UpdateArgs update_args(const char* name, const KernelCall& call, int state, int copy) {
  const TensorRef &master = call.in[0], &grad = call.in[1];
  need_f32(name, {&master});
  need_floats(name, {&grad});
  UpdateArgs a{master.as<float>(), grad.data,  nullptr,    nullptr, call.in[state].as<double>(), nullptr,
               numel(master),      grad.dtype, DType::bf16};
  if (call.n_in > copy) {
    a.copy = call.in[copy].data;
    a.copy_type = call.in[copy].dtype;
    if (!is_16bit(a.copy_type)) refuse(name, "the copy must be bf16 or fp16");
  }
  return a;
}

}  // namespace

void sum_squares(const KernelCall& call) {
  const TensorRef& x = call.in[0];
  need_floats("sum_squares", {&x});
  int64_t n = numel(x), blocks = ceil_div(n, threads * 16);
  if (blocks > workspace::partial_sums)
    blocks = workspace::partial_sums;  // never the machine's size: same bits everywhere
  if (call.workspace_bytes < 8 * blocks) refuse("sum_squares", "workspace too small");
  auto* partial = static_cast<double*>(call.workspace);
  if (n > 0)
    launch("sum_squares", aligned(x.data, 4 * size_of(x.dtype)) ? squares_part<true> : squares_part<false>,
           unsigned(blocks), threads, stream_of(call), x.data, x.dtype, n, partial);
  launch("sum_squares", squares_total, 1, 1024, stream_of(call), partial, int(blocks), call.out[0].as<double>());
}

void prepare_step(const KernelCall& call) {
  launch("prepare_step", prepare, 1, 1, stream_of(call), call.in[0].as<double>(),
         call.n_in > 1 ? call.in[1].as<double>() : nullptr, call.attrs.as<PrepareStepAttrs>());
}

void adamw(const KernelCall& call) {
  UpdateArgs a = update_args("adamw", call, 4, 5);
  need_f32("adamw", {&call.in[2], &call.in[3]});
  a.m = call.in[2].as<float>();
  a.v = call.in[3].as<float>();
  run_update("adamw", call, a, AdamW{call.attrs.as<AdamWAttrs>()});
}

void sgd(const KernelCall& call) {
  UpdateArgs a = update_args("sgd", call, 3, 4);
  const auto& attrs = call.attrs.as<SgdAttrs>();
  bool has_momentum = attrs.momentum != 0 && call.in[2].data;
  if (has_momentum) {
    need_f32("sgd", {&call.in[2]});
    a.m = call.in[2].as<float>();
  }
  run_update("sgd", call, a, Sgd{attrs, has_momentum});
}

}  // namespace sinter::cuda
