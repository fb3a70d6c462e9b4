// rms_norm and layer_norm, forward. The row stays in registers: x is read once, y written once (w, b come from cache),
// which is the speed of light: rows · d · (size of x + size of y) bytes.
#include "backend/cuda/norm.cuh"

namespace sinter::cuda {

namespace {

struct NormArgs {
  const void *x, *w, *b;  // b null: rms_norm, which also has no mean
  void* y;
  float *mean, *rroot;
  int64_t rows, x_stride, y_stride;
  int d;
  float eps;
  DType x_type, w_type, b_type, y_type;
  bool low_precision;
};

template <bool Centred, int K, int ThreadsPerRow>
__global__ void __launch_bounds__(256) norm_forward(const __grid_constant__ NormArgs a) {
  __shared__ float slots[2][8];
  int lane = threadIdx.x % ThreadsPerRow;
  int64_t row = int64_t(blockIdx.x) * (256 / ThreadsPerRow) + threadIdx.x / ThreadsPerRow;
  if (row >= a.rows) return;  // whole warps: a block of 256 per row has no such row
  int groups = a.d / 4;
  const char* x = row_at(a.x, a.x_type, row, a.x_stride);

  Raw4 raw[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int g = lane + k * ThreadsPerRow;
    raw[k] = g < groups ? load_raw4(x, a.x_type, g) : Raw4{0, 0, 0, 0};
  }
  float v[K][4], mean = 0, sum = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) unpack4(raw[k], a.x_type, v[k]);
  if constexpr (Centred) {
#pragma unroll
    for (int k = 0; k < K; ++k) sum += (v[k][0] + v[k][1]) + (v[k][2] + v[k][3]);
    mean = row_sum<ThreadsPerRow>(sum, slots[0]) / a.d;
    sum = 0;
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (lane + k * ThreadsPerRow >= groups) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[k][i] -= mean;
      sum += v[k][i] * v[k][i];
    }
  }
  float rroot = 1.0f / sqrtf(row_sum<ThreadsPerRow>(sum, slots[1]) / a.d + a.eps);
  if (lane == 0) {
    a.rroot[row] = rroot;
    if constexpr (Centred) a.mean[row] = mean;
  }
  char* y = row_at(a.y, a.y_type, row, a.y_stride);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int g = lane + k * ThreadsPerRow;
    if (g >= groups) continue;
    float w[4], b[4] = {};
    unpack4(load_raw4(a.w, a.w_type, g), a.w_type, w);
    if constexpr (Centred) unpack4(load_raw4(a.b, a.b_type, g), a.b_type, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = v[k][i] * rroot * w[i] + b[i];
    store4(y, a.y_type, g, w);
  }
}

// Any d, any alignment, one block per row in several passes; also the low-precision statistics, where one thread adds
// the row in x's 16-bit type, element by element (slow, as only a demonstration may be).
__global__ void __launch_bounds__(256) norm_forward_any(const __grid_constant__ NormArgs a) {
  __shared__ float slots[2][8];
  int64_t row = blockIdx.x;
  const char* x = row_at(a.x, a.x_type, row, a.x_stride);
  auto row_mean = [&](float* slot, auto term) {
    float sum = 0;
    if (a.low_precision) {
      if (threadIdx.x == 0)
        for (int i = 0; i < a.d; ++i) sum = round_to(a.x_type, sum + term(i));
    } else {
      for (int i = threadIdx.x; i < a.d; i += 256) sum += term(i);
    }
    return block_reduce<256>(sum, Add{}, slot) / a.d;  // adds only zeros to thread 0's low-precision sum
  };
  float mean = a.b ? row_mean(slots[0], [&](int i) { return load_float(x, a.x_type, i); }) : 0.0f;
  float mean_square = row_mean(slots[1], [&](int i) {
    float v = load_float(x, a.x_type, i) - mean;
    return v * v;
  });
  float rroot = 1.0f / sqrtf(mean_square + a.eps);
  if (threadIdx.x == 0) {
    a.rroot[row] = rroot;
    if (a.b) a.mean[row] = mean;
  }
  char* y = row_at(a.y, a.y_type, row, a.y_stride);
  for (int i = threadIdx.x; i < a.d; i += 256) {
    float v = (load_float(x, a.x_type, i) - mean) * rroot * load_float(a.w, a.w_type, i);
    store_float(y, a.y_type, i, a.b ? v + load_float(a.b, a.b_type, i) : v);
  }
}

template <bool Centred> void run_norm(const char* name, const KernelCall& call) {
  const auto& attrs = call.attrs.as<NormAttrs>();
  Rows x = rows_of(call.in[0]), y = rows_of(call.out[0]);
  const TensorRef &w = call.in[1], &b = call.in[Centred ? 2 : 1];
  need_floats(name, {&call.in[0], &w, &b, &call.out[0]});
  need_f32(name, {&call.out[1], &call.out[Centred ? 2 : 1]});
  if (x.rows == 0 || x.cols == 0) return;
  NormArgs a{x.data,
             w.data,
             Centred ? b.data : nullptr,
             y.data,
             Centred ? call.out[1].as<float>() : nullptr,
             call.out[Centred ? 2 : 1].as<float>(),
             x.rows,
             x.stride,
             y.stride,
             int(x.cols),
             float(attrs.eps),
             x.dtype,
             w.dtype,
             b.dtype,
             y.dtype,
             attrs.low_precision_statistics && is_16bit(x.dtype)};
  bool vectors = x.vectors_of(4) && y.vectors_of(4) && rows_of(w).vectors_of(4) && rows_of(b).vectors_of(4);
  bool done = vectors && !a.low_precision && with_row_shape(x.cols, [&](auto k, auto threads_per_row) {
                int64_t blocks = ceil_div(x.rows, 256 / threads_per_row);
                launch(name, norm_forward<Centred, k, threads_per_row>, grid_of(name, blocks), 256, stream_of(call), a);
              });
  if (!done) launch(name, norm_forward_any, grid_of(name, x.rows), 256, stream_of(call), a);
}

}  // namespace

void rms_norm(const KernelCall& call) { run_norm<false>("rms_norm", call); }
void layer_norm(const KernelCall& call) { run_norm<true>("layer_norm", call); }

}  // namespace sinter::cuda
