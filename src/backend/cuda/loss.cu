// Cross-entropy over rows of logits. Forward is one read of the logits (maximum and sum of exponentials together),
// backward one read and one write: rows · V · size bytes each way is the speed of light. V is large (10⁴ to 10⁵), so a
// block takes a row. In place both are one kernel, which keeps the row in shared memory, if two such rows fit there;
// otherwise its second read finds the row in the L2 cache: not more rows are at work together than fit there.
#include <algorithm>

#include "backend/cuda/device_math.cuh"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;
constexpr int unroll = 8;

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

// The logarithm of the sum of exponentials of a row, in every thread. With Keep the row goes to `kept` as well: each
// thread's part is what it asks for in gradient_of_row.
template <bool Keep, class T>
__device__ __forceinline__ float log_of_sum(const T* x, int n, float (&slots)[2][threads / 32], T* kept = nullptr) {
  constexpr int V = vector_length<T>;
  int head = head_of(x, n), vectors = (n - head) / V;
  ExpSum e;
  for (int g = threadIdx.x; g < vectors; g += threads * unroll) {
    Pack<T, V> raw[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (g + u * threads < vectors) raw[u] = load_pack<T, V>(x + head + (g + u * threads) * V);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (g + u * threads >= vectors) continue;
      if constexpr (Keep) *reinterpret_cast<Pack<T, V>*>(kept + head + (g + u * threads) * V) = raw[u];
      float v[V];
      unpack(raw[u], v);
      e.add(v);
    }
  }
  auto single = [&](int j) {
    if constexpr (Keep) kept[j] = x[j];
    float v[1] = {to_float(x[j])};
    e.add(v);
  };
  if (int(threadIdx.x) < head) single(threadIdx.x);
  int tail = head + vectors * V + threadIdx.x;
  if (tail < n) single(tail);
  float m = block_reduce<threads>(e.m, Max{}, slots[0]);
  return (m + log2f(block_reduce<threads>(e.sum * fast_exp2(e.m - m), Add{}, slots[1]))) * ln_2;
}

template <class T> __device__ __forceinline__ double loss_of_row(const T* x, int64_t target, int n, float lse) {
  bool valid = target >= 0 && target < n;  // NaN otherwise: a fault that shows
  return double(lse) - (valid ? double(to_float(x[target])) : nan(""));
}

template <class T>
__global__ void __launch_bounds__(threads) cross_entropy_forward(const __grid_constant__ CrossEntropyArgs a) {
  __shared__ float slots[2][8];
  int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.logits) + row * a.stride;
  float lse = log_of_sum<false>(x, a.vocabulary, slots);
  if (threadIdx.x == 0) {
    a.lse[row] = lse;
    a.row_loss[row] = loss_of_row(x, load<int64_t>(a.targets, a.target_type, row), a.vocabulary, lse);
  }
}

__global__ void __launch_bounds__(1024) mean_of_rows(float* loss, const double* row_loss, int64_t rows) {
  __shared__ double slots[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) sum += row_loss[i];
  sum = block_reduce<1024>(sum, Add{}, slots);
  if (threadIdx.x == 0) *loss = float(sum / double(rows));
}

// dx may be x: every element is read and written by one thread. x lies as dx does between 16-byte boundaries,
// or nothing is done by vectors.
template <class T>
__device__ __forceinline__ void gradient_of_row(T* dx, const T* x, int n, int target, float lse, float factor) {
  constexpr int V = vector_length<T>;
  lse *= log2_e;
  auto gradient = [&](float v, int j) { return (fast_exp2(fmaf(v, log2_e, -lse)) - float(j == target)) * factor; };

  // Vectors need both rows to sit alike between 16-byte boundaries.
  bool alike = (reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(dx)) % 16 == 0;
  int head = alike ? head_of(x, n) : 0, vectors = alike ? (n - head) / V : 0;
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
  for (int j = head + vectors * V + threadIdx.x; j < n; j += threads)
    dx[j] = from_float<T>(gradient(to_float(x[j]), j));
}

template <class T>
__global__ void __launch_bounds__(threads) cross_entropy_gradient(const __grid_constant__ CrossEntropyArgs a) {
  int64_t row = blockIdx.x;
  gradient_of_row(static_cast<T*>(a.dlogits) + row * a.out_stride, static_cast<const T*>(a.logits) + row * a.stride,
                  a.vocabulary, int(load<int64_t>(a.targets, a.target_type, row)), a.lse[row],
                  load<float>(a.dloss, a.dloss_type, 0) * a.inverse_rows);
}

// The bits of the two kernels above.
template <class T, bool Keep>
__global__ void __launch_bounds__(threads) cross_entropy_in_place(const __grid_constant__ CrossEntropyArgs a) {
  extern __shared__ __align__(16) char memory[];
  __shared__ float slots[2][threads / 32];
  int64_t row = blockIdx.x, target = load<int64_t>(a.targets, a.target_type, row);
  T* x = static_cast<T*>(a.dlogits) + row * a.stride;
  T* kept = Keep ? reinterpret_cast<T*>(memory + reinterpret_cast<uintptr_t>(x) % 16) : x;
  float lse = log_of_sum<Keep>(x, a.vocabulary, slots, kept);
  if (threadIdx.x == 0) a.row_loss[row] = loss_of_row(x, target, a.vocabulary, lse);
  __syncthreads();  // the target's logit has been read
  gradient_of_row(x, kept, a.vocabulary, int(target), lse, load<float>(a.dloss, a.dloss_type, 0) * a.inverse_rows);
}

// What blocks of this many can have of a multiprocessor's shared memory, each.
int shared_memory(int64_t blocks) {
  static const auto limit = [](cudaDeviceAttr of) {
    int device = 0, bytes = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&bytes, of, device), "cudaDeviceGetAttribute");
    return bytes;
  };
  static const int all = limit(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
                   one = limit(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return std::min(one - 1024, int(all / blocks) - 2048);  // less what the kernel has besides
}

// Shared memory that leaves room for as many blocks as there may be rows in the L2 cache, each on a multiprocessor.
int memory_to_limit_rows(int64_t row_bytes) {
  constexpr int64_t cache = int64_t(30) << 20, most = 2048 / threads;  // of an H100 and H200, well below their 50 MiB
  int64_t blocks = std::max<int64_t>(1, cache / (row_bytes * multiprocessors()));
  return blocks >= most ? 0 : shared_memory(blocks);
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
  const bool in_place = call.n_in > 2;
  need_f32("cross_entropy", {&call.out[0]});
  if (call.workspace_bytes < 8 * logits.rows) refuse("cross_entropy", "workspace too small");
  CrossEntropyArgs a = args_of(logits, call.in[1]);
  a.row_loss = static_cast<double*>(call.workspace);
  if (in_place) {
    a.dlogits = logits.data;
    a.dloss = call.in[2].data;
    a.dloss_type = call.in[2].dtype;
  } else {
    need_f32("cross_entropy", {&call.out[1]});
    a.lse = call.out[1].as<float>();
  }
  if (logits.rows > 0)
    with_float_type("cross_entropy", logits.dtype, [&](auto t) {
      using T = decltype(t);
      unsigned blocks = grid_of("cross_entropy", logits.rows);
      if (!in_place) return launch("cross_entropy", cross_entropy_forward<T>, blocks, threads, stream_of(call), a);
      int64_t row_bytes = logits.cols * int64_t(sizeof(T)), to_keep = row_bytes + 16;
      bool keep = to_keep <= shared_memory(2);
      auto kernel = keep ? cross_entropy_in_place<T, true> : cross_entropy_in_place<T, false>;
      int bytes = keep ? int(to_keep) : memory_to_limit_rows(row_bytes);
      check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cross_entropy");
      kernel<<<blocks, threads, size_t(bytes), stream_of(call)>>>(a);
      check_cuda(cudaGetLastError(), "cross_entropy");
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
