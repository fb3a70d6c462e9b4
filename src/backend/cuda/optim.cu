// The optimizer: gradient norm, the step's numbers, AdamW and SGD over flat buffers. Learning rate, step count and loss
// scale are read from device memory, so that nothing waits for the host and a replayed step is a fresh one.
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

// ---- updates, four elements per thread and turn ----

struct UpdateArgs {
  float* master;
  const void* grad;
  float *m, *v;  // v null: SGD; m null: SGD without momentum
  const double* state;
  void* copy;    // null: no 16-bit copy
  int64_t n;
  DType grad_type, copy_type;
  double beta1, beta2, eps, weight_decay;  // beta1: SGD's momentum
};

struct AdamWNumbers {
  float factor, decay, beta1, beta2, eps, rate, inverse_root;
};
__device__ __forceinline__ void adamw_element(const AdamWNumbers& c, float& p, float g, float& m, float& v) {
  g *= c.factor;
  p *= c.decay;
  m = fmaf(c.beta1, m, (1.0f - c.beta1) * g);
  v = fmaf(c.beta2, v, (1.0f - c.beta2) * g * g);
  p -= c.rate * m / fmaf(sqrtf(v), c.inverse_root, c.eps);
}

struct SgdNumbers {
  float factor, decay, momentum, lr;
  bool first;
};
__device__ __forceinline__ void sgd_element(const SgdNumbers& c, float& p, float g, float& b, bool momentum) {
  g = fmaf(c.decay, p, g * c.factor);
  if (momentum) b = c.first ? g : fmaf(c.momentum, b, g);
  p -= c.lr * (momentum ? b : g);
}

}  // namespace

}  // namespace sinter::cuda
