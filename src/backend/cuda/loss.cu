// Cross-entropy over rows of logits. Forward is one read of the logits (maximum and sum of exponentials together),
// backward one read and one write: rows · V · size bytes each way is the speed of light. V is large (10⁴ to 10⁵), so a
// block takes a row.
#include "backend/cuda/device_math.cuh"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;
constexpr int unroll = 4;

struct CrossEntropyArgs {
  const void *logits, *targets;
  void* dlogits;
  float* lse;
  double* row_loss;
  const void* dloss;
  int64_t stride, out_stride;
  int vocabulary;
  float inverse_rows;
  DType target_type, dloss_type;
};

// A running sum of 2^(x - m), x in base 2. m starts finite so that rows of -inf make no NaN on the way.
struct ExpSum {
  float m = -3e38f, sum = 0;

  template <int N> __device__ __forceinline__ void add(const float (&x)[N]) {
    float top = m;
#pragma unroll
    for (int i = 0; i < N; ++i) top = fmaxf(top, x[i] * log2_e);
    sum *= fast_exp2(m - top);
    m = top;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += fast_exp2(fmaf(x[i], log2_e, -top));
  }
};

// Elements before the first 16-byte boundary.
template <class T> __device__ __forceinline__ int head_of(const T* row, int n) {
  int head = int((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T));
  return head < n ? head : n;
}

template <class T>
__global__ void __launch_bounds__(threads) cross_entropy_forward(const __grid_constant__ CrossEntropyArgs a) {
  constexpr int V = vector_length<T>;
  __shared__ float slots[2][8];
  int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.logits) + row * a.stride;
  int head = head_of(x, a.vocabulary), vectors = (a.vocabulary - head) / V;
  ExpSum e;
  for (int g = threadIdx.x; g < vectors; g += threads * unroll) {
    Pack<T, V> raw[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (g + u * threads < vectors) raw[u] = load_pack<T, V>(x + head + (g + u * threads) * V);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (g + u * threads >= vectors) continue;
      float v[V];
      unpack(raw[u], v);
      e.add(v);
    }
  }
  auto single = [&](int j) {
    float v[1] = {to_float(x[j])};
    e.add(v);
  };
  if (int(threadIdx.x) < head) single(threadIdx.x);
  int tail = head + vectors * V + threadIdx.x;
  if (tail < a.vocabulary) single(tail);

  float m = block_reduce<threads>(e.m, Max{}, slots[0]);
  float sum = block_reduce<threads>(e.sum * fast_exp2(e.m - m), Add{}, slots[1]);
  if (threadIdx.x == 0) {
    float lse = (m + log2f(sum)) * ln_2;
    a.lse[row] = lse;
    int64_t target = load<int64_t>(a.targets, a.target_type, row);
    bool valid = target >= 0 && target < a.vocabulary;  // NaN otherwise: a fault that shows
    a.row_loss[row] = double(lse) - (valid ? double(to_float(x[target])) : nan(""));
  }
}

__global__ void __launch_bounds__(1024) mean_of_rows(float* loss, const double* row_loss, int64_t rows) {
  __shared__ double slots[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) sum += row_loss[i];
  sum = block_reduce<1024>(sum, Add{}, slots);
  if (threadIdx.x == 0) *loss = float(sum / double(rows));
}

// dlogits may be the logits themselves: every element is read and written by one thread.
template <class T>
__global__ void __launch_bounds__(threads) cross_entropy_gradient(const __grid_constant__ CrossEntropyArgs a) {
  constexpr int V = vector_length<T>;
  int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.logits) + row * a.stride;
  T* dx = static_cast<T*>(a.dlogits) + row * a.out_stride;
  int target = int(load<int64_t>(a.targets, a.target_type, row));
  float factor = load<float>(a.dloss, a.dloss_type, 0) * a.inverse_rows, lse = a.lse[row] * log2_e;
  auto gradient = [&](float v, int j) { return (fast_exp2(fmaf(v, log2_e, -lse)) - float(j == target)) * factor; };

  // Vectors need both rows to sit alike between 16-byte boundaries.
  bool alike = (reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(dx)) % 16 == 0;
  int head = alike ? head_of(x, a.vocabulary) : 0, vectors = alike ? (a.vocabulary - head) / V : 0;
  for (int g = threadIdx.x; g < vectors; g += threads * unroll) {
    Pack<T, V> raw[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (g + u * threads < vectors) raw[u] = load_pack<T, V>(x + head + (g + u * threads) * V);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (g + u * threads >= vectors) continue;
      int j = head + (g + u * threads) * V;
      float v[V];
      unpack(raw[u], v);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] = gradient(v[i], j + i);
      store_pack(dx + j, v);
    }
  }
  if (int(threadIdx.x) < head) dx[threadIdx.x] = from_float<T>(gradient(to_float(x[threadIdx.x]), threadIdx.x));
  for (int j = head + vectors * V + threadIdx.x; j < a.vocabulary; j += threads)
    dx[j] = from_float<T>(gradient(to_float(x[j]), j));
}

CrossEntropyArgs args_of(const Rows& logits, const TensorRef& targets) {
  CrossEntropyArgs a{};
  a.logits = logits.data;
  a.targets = targets.data;
  a.target_type = targets.dtype;
  a.stride = logits.stride;
  a.vocabulary = int(logits.cols);
  a.inverse_rows = float(1.0 / double(logits.rows));
  return a;
}

}  // namespace

void cross_entropy(const KernelCall& call) {
  Rows logits = rows_of(call.in[0]);
  need_f32("cross_entropy", {&call.out[0], &call.out[1]});
  if (call.workspace_bytes < 8 * logits.rows) refuse("cross_entropy", "workspace too small");
  CrossEntropyArgs a = args_of(logits, call.in[1]);
  a.lse = call.out[1].as<float>();
  a.row_loss = static_cast<double*>(call.workspace);
  if (logits.rows > 0)
    with_float_type("cross_entropy", logits.dtype, [&](auto t) {
      launch("cross_entropy", cross_entropy_forward<decltype(t)>, grid_of("cross_entropy", logits.rows), threads,
             stream_of(call), a);
    });
  launch("cross_entropy", mean_of_rows, 1, 1024, stream_of(call), call.out[0].as<float>(), a.row_loss, logits.rows);
}

void cross_entropy_backward(const KernelCall& call) {
  Rows logits = rows_of(call.in[0]), dlogits = rows_of(call.out[0]);
  need_f32("cross_entropy_backward", {&call.in[2]});
  if (dlogits.dtype != logits.dtype) refuse("cross_entropy_backward", "dlogits must have the type of the logits");
  if (logits.rows == 0 || logits.cols == 0) return;
  CrossEntropyArgs a = args_of(logits, call.in[1]);
  a.lse = call.in[2].as<float>();
  a.dloss = call.in[3].data;
  a.dloss_type = call.in[3].dtype;
  a.dlogits = dlogits.data;
  a.out_stride = dlogits.stride;
  with_float_type("cross_entropy_backward", logits.dtype, [&](auto t) {
    launch("cross_entropy_backward", cross_entropy_gradient<decltype(t)>,
           grid_of("cross_entropy_backward", logits.rows), threads, stream_of(call), a);
  });
}

}  // namespace sinter::cuda
