// Scaled, causal softmax over the last dimension. Rows live in registers: a warp for up to 1024 columns, a block up to
// 4096, several passes beyond. Causal rows read only what they see.
// Speed of light: forward one read and one write of the scores, backward two reads and one write; with a causal mask
// over a square, reads halve.
#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

// Where the rows of an operand begin: they lie in matrices of tq rows.
struct RowStrides {
  int64_t matrix, row;
};

struct SoftmaxArgs {
  const void *a, *b;  // scores; or p and dp
  void* out;
  RowStrides a_at, b_at, out_at;
  int rows, tq, tk;
  float scale;
  int64_t causal_offset;
  bool causal, accumulate;
  DType a_type, b_type, out_type;
};

__device__ __forceinline__ int visible(const SoftmaxArgs& s, int row) {
  if (!s.causal) return s.tk;
  int64_t n = row % s.tq + s.causal_offset + 1;
  return n < 0 ? 0 : n > s.tk ? s.tk : int(n);
}

__device__ __forceinline__ int64_t row_begin(const SoftmaxArgs& s, const RowStrides& at, int row) {
  int matrix = row / s.tq;
  return matrix * at.matrix + (row - matrix * s.tq) * at.row;
}

constexpr float minus_infinity = -__builtin_inff();

template <int ThreadsPerRow, class Op> __device__ __forceinline__ float row_reduce(float x, Op op, float* slots) {
  if constexpr (ThreadsPerRow == 32) return warp_reduce(x, op);
  else return block_reduce<ThreadsPerRow>(x, op, slots);
}

// K vectors of V columns per thread; column of element i of vector k.
template <class T, int K, int ThreadsPerRow>
__global__ void __launch_bounds__(256) softmax_forward(const __grid_constant__ SoftmaxArgs s) {
  constexpr int V = vector_length<T>;
  __shared__ float slots[2][8];
  int lane = threadIdx.x % ThreadsPerRow;
  int64_t row = int64_t(blockIdx.x) * (256 / ThreadsPerRow) + threadIdx.x / ThreadsPerRow;
  if (row >= s.rows) return;  // whole warps only
  int seen = visible(s, int(row));
  const T* in = static_cast<const T*>(s.a) + row_begin(s, s.a_at, int(row));
  T* out = static_cast<T*>(s.out) + row_begin(s, s.out_at, int(row));

  Pack<T, V> raw[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int column = (lane + k * ThreadsPerRow) * V;
    raw[k] = column < seen ? load_pack<T, V>(in + column) : zero_pack<T, V>();
  }
  float x[K][V], m = minus_infinity, sum = 0, factor = s.scale * log2_e;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    unpack(raw[k], x[k]);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      x[k][i] = (lane + k * ThreadsPerRow) * V + i < seen ? x[k][i] * factor : minus_infinity;
      m = fmaxf(m, x[k][i]);
    }
  }
  m = row_reduce<ThreadsPerRow>(m, Max{}, slots[0]);
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      x[k][i] = (lane + k * ThreadsPerRow) * V + i < seen ? fast_exp2(x[k][i] - m) : 0.0f;
      sum += x[k][i];
    }
  }
  sum = row_reduce<ThreadsPerRow>(sum, Add{}, slots[1]);
  float inverse = seen > 0 ? 1.0f / sum : 0.0f;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int column = (lane + k * ThreadsPerRow) * V;
    if (column >= s.tk) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] *= inverse;
    store_pack(out + column, x[k]);
  }
}

template <class T, int K, int ThreadsPerRow>
__global__ void __launch_bounds__(256) softmax_gradient(const __grid_constant__ SoftmaxArgs s) {
  constexpr int V = vector_length<T>;
  __shared__ float slots[8];
  int lane = threadIdx.x % ThreadsPerRow;
  int64_t row = int64_t(blockIdx.x) * (256 / ThreadsPerRow) + threadIdx.x / ThreadsPerRow;
  if (row >= s.rows) return;
  int seen = visible(s, int(row));
  const T* p_row = static_cast<const T*>(s.a) + row_begin(s, s.a_at, int(row));
  const T* dp_row = static_cast<const T*>(s.b) + row_begin(s, s.b_at, int(row));
  T* out = static_cast<T*>(s.out) + row_begin(s, s.out_at, int(row));

  Pack<T, V> raw_p[K], raw_dp[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int column = (lane + k * ThreadsPerRow) * V;
    bool inside = column < seen;
    raw_p[k] = inside ? load_pack<T, V>(p_row + column) : zero_pack<T, V>();
    raw_dp[k] = inside ? load_pack<T, V>(dp_row + column) : zero_pack<T, V>();
  }
  float p[K][V], dp[K][V], dot = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    unpack(raw_p[k], p[k]);
    unpack(raw_dp[k], dp[k]);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if ((lane + k * ThreadsPerRow) * V + i >= seen) p[k][i] = dp[k][i] = 0.0f;
      dot += p[k][i] * dp[k][i];
    }
  }
  dot = row_reduce<ThreadsPerRow>(dot, Add{}, slots);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int column = (lane + k * ThreadsPerRow) * V;
    if (column >= s.tk) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) p[k][i] *= s.scale * (dp[k][i] - dot);
    if (s.accumulate) {
      float before[V];
      unpack(load_pack<T, V>(out + column), before);
#pragma unroll
      for (int i = 0; i < V; ++i) p[k][i] += before[i];
    }
    store_pack(out + column, p[k]);
  }
}

// Any length, alignment and mix of types: a block per row, two passes, the second usually from cache.
__global__ void __launch_bounds__(256) softmax_forward_any(const __grid_constant__ SoftmaxArgs s) {
  __shared__ float slots[2][8];
  int seen = visible(s, blockIdx.x);
  int64_t from = row_begin(s, s.a_at, blockIdx.x), to = row_begin(s, s.out_at, blockIdx.x);
  float m = minus_infinity, sum = 0, factor = s.scale * log2_e;
  for (int j = threadIdx.x; j < seen; j += 256) m = fmaxf(m, load_float(s.a, s.a_type, from + j) * factor);
  m = block_reduce<256>(m, Max{}, slots[0]);
  for (int j = threadIdx.x; j < seen; j += 256) sum += fast_exp2(load_float(s.a, s.a_type, from + j) * factor - m);
  sum = block_reduce<256>(sum, Add{}, slots[1]);
  float inverse = 1.0f / sum;
  for (int j = threadIdx.x; j < s.tk; j += 256) {
    float p = j < seen ? fast_exp2(load_float(s.a, s.a_type, from + j) * factor - m) * inverse : 0.0f;
    store_float(s.out, s.out_type, to + j, p);
  }
}
__global__ void __launch_bounds__(256) softmax_gradient_any(const __grid_constant__ SoftmaxArgs s) {
  __shared__ float slots[8];
  int seen = visible(s, blockIdx.x);
  int64_t p = row_begin(s, s.a_at, blockIdx.x), dp = row_begin(s, s.b_at, blockIdx.x),
          to = row_begin(s, s.out_at, blockIdx.x);
  float dot = 0;
  for (int j = threadIdx.x; j < seen; j += 256)
    dot += load_float(s.a, s.a_type, p + j) * load_float(s.b, s.b_type, dp + j);
  dot = block_reduce<256>(dot, Add{}, slots);
  for (int j = threadIdx.x; j < s.tk; j += 256) {
    float r = 0;
    if (j < seen) r = s.scale * load_float(s.a, s.a_type, p + j) * (load_float(s.b, s.b_type, dp + j) - dot);
    if (s.accumulate) r += load_float(s.out, s.out_type, to + j);
    store_float(s.out, s.out_type, to + j, r);
  }
}

template <class T, int Elements, int ThreadsPerRow>
void launch_rows(const char* name, const SoftmaxArgs& s, cudaStream_t stream) {
  constexpr int K = Elements / vector_length<T>;
  auto kernel = s.b ? softmax_gradient<T, K, ThreadsPerRow> : softmax_forward<T, K, ThreadsPerRow>;
  launch(name, kernel, unsigned(ceil_div(s.rows, 256 / ThreadsPerRow)), 256, stream, s);
}

// The leading dimensions fold into one.
RowStrides strides_of(const TensorRef& t) {
  RowStrides s{0, t.rank > 1 ? t.strides[t.rank - 2] : 0};
  for (int d = 0; d + 2 < t.rank; ++d)
    if (t.dims[d] != 1) s.matrix = t.strides[d];
  return s;
}
bool takes_vectors(const TensorRef& t) {
  RowStrides s = strides_of(t);
  int64_t size = size_of(t.dtype);
  return aligned(t.data, 16) && t.dims[t.rank - 1] * size % 16 == 0 && s.row * size % 16 == 0 &&
         s.matrix * size % 16 == 0;
}

void run_softmax(const char* name, const KernelCall& call, const TensorRef* b) {
  const TensorRef &a = call.in[0], &out = call.out[0];
  const auto& attrs = call.attrs.as<SoftmaxAttrs>();
  need_floats(name, {&a, b ? b : &a, &out});
  int64_t n = numel(out);
  if (n == 0) return;
  int64_t tk = a.dims[a.rank - 1], tq = a.rank > 1 ? a.dims[a.rank - 2] : 1;
  grid_of(name, n / tk);
  SoftmaxArgs s{a.data,
                b ? b->data : nullptr,
                out.data,
                strides_of(a),
                b ? strides_of(*b) : RowStrides{},
                strides_of(out),
                int(n / tk),
                int(tq),
                int(tk),
                float(attrs.scale),
                attrs.causal_offset,
                attrs.causal,
                call.accumulates(0),
                a.dtype,
                b ? b->dtype : a.dtype,
                out.dtype};
  cudaStream_t stream = stream_of(call);
  bool same = s.a_type == s.out_type && s.b_type == s.out_type;
  bool vectors = takes_vectors(a) && takes_vectors(out) && (!b || takes_vectors(*b));
  if (!same || !vectors || tk > 4096)
    return launch(name, b ? softmax_gradient_any : softmax_forward_any, s.rows, 256, stream, s);
  with_float_type(name, a.dtype, [&](auto t) {
    using T = decltype(t);
    if (tk <= 256) launch_rows<T, 8, 32>(name, s, stream);
    else if (tk <= 512) launch_rows<T, 16, 32>(name, s, stream);
    else if (tk <= 1024) launch_rows<T, 32, 32>(name, s, stream);
    else if (tk <= 2048) launch_rows<T, 8, 256>(name, s, stream);
    else launch_rows<T, 16, 256>(name, s, stream);
  });
}

}  // namespace

void softmax(const KernelCall& call) {
  if (call.accumulate) refuse("softmax", "cannot accumulate");
  run_softmax("softmax", call, nullptr);
}
void softmax_backward(const KernelCall& call) { run_softmax("softmax_backward", call, &call.in[1]); }

}  // namespace sinter::cuda
