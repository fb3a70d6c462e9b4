// The optimizer: gradient norm, the step's numbers, AdamW and SGD over flat buffers. Learning rate, step count and loss
// scale are read from device memory, so that nothing waits for the host and a replayed step is a fresh one.
#include "backend/cuda/adamw.cuh"
#include "backend/cuda/device_math.cuh"
#include "backend/workspace.h"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;
constexpr int64_t most_blocks = 1 << 16;

// ---- sum of squares. Speed of light: one read of x. In fp64: a gradient of 1e20 is a fact to report, not an infinity.

// A warp adds up a block of the buffer, whoever asks for how much of it: the sums do not depend on how the buffer is
// divided among ranks.
template <bool Vectors>
__global__ void __launch_bounds__(threads) squares_of_blocks(const void* x, DType type, int64_t n, double* sums) {
  constexpr int warps = threads / 32, groups = squares_block / 4 / 32;
  int64_t blocks = (n + squares_block - 1) / squares_block;
  int lane = threadIdx.x % 32;
  for (int64_t b = int64_t(blockIdx.x) * warps + threadIdx.x / 32; b < blocks; b += int64_t(gridDim.x) * warps) {
    int64_t first = b * squares_block;
    double sum = 0;
    if (Vectors && first + squares_block <= n) {
      Raw4 raw[groups];
#pragma unroll
      for (int g = 0; g < groups; ++g) raw[g] = load_raw4(x, type, first / 4 + g * 32 + lane);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        float v[4];
        unpack4(raw[g], type, v);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum = fma(double(v[k]), double(v[k]), sum);
      }
    } else {  // the same elements in the same order
      for (int g = 0; g < groups; ++g)
        for (int k = 0; k < 4; ++k) {
          int64_t i = first + (g * 32 + lane) * 4 + k;
          double v = i < n ? load_float(x, type, i) : 0;
          sum = fma(v, v, sum);
        }
    }
    sum = warp_reduce(sum, Add{});
    if (lane == 0) sums[b] = sum;
  }
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
  int64_t n = numel(x), blocks = ceil_div(n, threads / 32 * squares_block);
  if (n > 0)
    launch("sum_squares", aligned(x.data, 4 * size_of(x.dtype)) ? squares_of_blocks<true> : squares_of_blocks<false>,
           unsigned(blocks < most_blocks ? blocks : most_blocks), threads, stream_of(call), x.data, x.dtype, n,
           call.out[0].as<double>());
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
