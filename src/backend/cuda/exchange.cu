// The kernels of Note [Flags] in exchange.h. Each moves every number that its rank must read or write once, which is
// all that has to move; additions have the order of ranks, so that the bits are those of ranks that share a CPU's
// memory.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/exchange.cuh"
#include "backend/cuda/runtime.h"

namespace sinter::cuda {
namespace {

constexpr int threads = 512;

template <class T> struct alignas(16) Pack {
  static constexpr int n = 16 / sizeof(T);
  T v[n];
};
template <class T> struct Sum { using type = float; };
template <> struct Sum<double> { using type = double; };

template <class A, class T> __device__ A widened(T x) {
  if constexpr (sizeof(T) == 2) return to_float(x);
  else return x;
}
template <class T, class A> __device__ T narrowed(A x) {
  if constexpr (sizeof(T) == 2) return from_float<T>(x);
  else return x;
}

// out[to][i] = (at[0][i] + at[1][i] + …) · factor for i in [begin, end), by all blocks. U: items of a thread in flight.
template <class T, int ranks, int U, int outs_are_ins>
__device__ void add_up(char* const* at, char* out, int n, int64_t begin, int64_t end, double factor) {
  using A = typename Sum<T>::type;
  using P = Pack<T>;
  const A f = A(factor);
  const int count = ranks ? ranks : n;
  const int64_t stride = int64_t(gridDim.x) * threads;
  for (int64_t base = begin + blockIdx.x * int64_t(threads) + threadIdx.x; base < end; base += stride * U) {
    A sum[U][P::n];
#pragma unroll
    for (int r = 0; r < (ranks ? ranks : max_exchange_ranks); ++r) {
      if (!ranks && r >= count) break;
      P p[U];
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (base + u * stride < end) p[u] = reinterpret_cast<const P*>(at[r])[base + u * stride];
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int k = 0; k < P::n; ++k) {
          A x = widened<A>(p[u].v[k]);
          sum[u][k] = r == 0 ? x : sum[u][k] + x;
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (base + u * stride >= end) break;
      P result;
#pragma unroll
      for (int k = 0; k < P::n; ++k) result.v[k] = narrowed<T>(sum[u][k] * f);
      if constexpr (outs_are_ins) {
#pragma unroll
        for (int r = 0; r < (ranks ? ranks : max_exchange_ranks); ++r) {
          if (!ranks && r >= count) break;
          reinterpret_cast<P*>(at[r])[base + u * stride] = result;
        }
      } else {
        reinterpret_cast<P*>(out)[base + u * stride] = result;
      }
    }
  }
}

// One by one: what is left over, and what does not lie at multiples of 16 bytes.
template <class T>
__device__ void add_up_singly(char* const* at, char* out, int n, int64_t begin, int64_t end, double factor) {
  using A = typename Sum<T>::type;
  const A f = A(factor);
  for (int64_t i = begin + blockIdx.x * int64_t(threads) + threadIdx.x; i < end; i += int64_t(gridDim.x) * threads) {
    A sum = widened<A>(reinterpret_cast<const T*>(at[0])[i]);
    for (int r = 1; r < n; ++r) sum += widened<A>(reinterpret_cast<const T*>(at[r])[i]);
    T result = narrowed<T>(sum * f);
    if (out) reinterpret_cast<T*>(out)[i] = result;
    else
      for (int r = 0; r < n; ++r) reinterpret_cast<T*>(at[r])[i] = result;
  }
}

__device__ void copy(char* to, const char* from, int64_t bytes) {
  if (to == from) return;
  const int64_t first = blockIdx.x * int64_t(threads) + threadIdx.x, stride = int64_t(gridDim.x) * threads;
  bool aligned = (reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % 16 == 0;
  int64_t packs = aligned ? bytes / 16 : 0;
  constexpr int U = 4;
  for (int64_t i = first; i < packs; i += stride * U) {
    uint4 x[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (i + u * stride < packs) x[u] = reinterpret_cast<const uint4*>(from)[i + u * stride];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (i + u * stride < packs) reinterpret_cast<uint4*>(to)[i + u * stride] = x[u];
  }
  for (int64_t i = 16 * packs + first; i < bytes; i += stride) to[i] = from[i];
}

template <class T, int ranks> __device__ void reduce(const ExchangeArgs& a, char* const* at, bool aligned) {
  constexpr int n = Pack<T>::n, U = ranks == 2 ? 4 : ranks ? 2 : 1;
  if (a.kind == CollectiveKind::all_reduce) {
    int64_t packs = aligned ? a.elements / n : 0, rest = n * packs;
    add_up<T, ranks, U, 1>(at, nullptr, a.ranks, packs * a.rank / a.ranks, packs * (a.rank + 1) / a.ranks, a.factor);
    int64_t left = a.elements - rest;
    add_up_singly<T>(at, nullptr, a.ranks, rest + left * a.rank / a.ranks, rest + left * (a.rank + 1) / a.ranks,
                     a.factor);
  } else {
    int64_t share = a.elements / a.ranks, packs = aligned ? share / n : 0;
    add_up<T, ranks, U, 0>(at, a.out, a.ranks, 0, packs, a.factor);
    add_up_singly<T>(at, a.out, a.ranks, n * packs, share, a.factor);
  }
}

// A line of instances: types by numbers of ranks.
template <class T, int ranks> __global__ void __launch_bounds__(threads) exchange_kernel(ExchangeArgs a) {
  __shared__ char* at[max_exchange_ranks];
  __shared__ int misaligned;
  if (threadIdx.x == 0) misaligned = int(reinterpret_cast<uint64_t>(a.out) % 16);
  __syncthreads();
  if (int r = int(threadIdx.x); r < a.ranks) {
    char* p = a.at[r];
    if (a.kind == CollectiveKind::reduce_scatter) p += a.rank * (a.elements / a.ranks) * int64_t(sizeof(T));
    at[r] = p;
    if (reinterpret_cast<uint64_t>(p) % 16) misaligned = 1;
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    a.progress->current = a.id | past;
    a.progress->finished = ++*a.count;
  }
  switch (a.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter: reduce<T, ranks>(a, at, misaligned == 0); break;
    case CollectiveKind::all_gather: {
      int64_t bytes = a.elements / a.ranks * int64_t(sizeof(T));
      for (int i = 0; i < a.ranks; ++i) {
        int r = (a.rank + i) % a.ranks;
        copy(a.out + r * bytes, at[r], bytes);
      }
      break;
    }
    case CollectiveKind::broadcast: copy(a.out, at[a.root], a.elements * int64_t(sizeof(T))); break;
    case CollectiveKind::barrier: break;
  }
}

template <class T> void launch(const ExchangeArgs& a, int blocks, cudaStream_t stream) {
  switch (a.ranks) {
    case 2: exchange_kernel<T, 2><<<blocks, threads, 0, stream>>>(a); break;
    case 4: exchange_kernel<T, 4><<<blocks, threads, 0, stream>>>(a); break;
    default: exchange_kernel<T, 0><<<blocks, threads, 0, stream>>>(a);
  }
}

__global__ void count_kernel(uint64_t* count, volatile ProgressWords* progress) {
  progress->current = 0;
  progress->finished = ++*count;
}

}  // namespace

// Enough to keep memory busy; fewer where there is less to do, so that what runs beside it keeps its multiprocessors.
void exchange(const ExchangeArgs& a, DType dtype, cudaStream_t stream) {
  int64_t work = a.elements * size_of(dtype) / 16;
  if (a.kind == CollectiveKind::all_reduce || a.kind == CollectiveKind::reduce_scatter) work /= a.ranks;
  int64_t blocks = (work + 4 * threads - 1) / (4 * threads), most = 2 * multiprocessors();
  int grid = int(blocks < 1 ? 1 : blocks > most ? most : blocks);
  switch (dtype) {
    case DType::f32: launch<float>(a, grid, stream); break;
    case DType::f64: launch<double>(a, grid, stream); break;
    case DType::bf16: launch<bf16_t>(a, grid, stream); break;
    case DType::f16: launch<f16_t>(a, grid, stream); break;
    default: refuse(name_of(a.kind), "only floats are exchanged");
  }
  check_cuda(cudaGetLastError(), "exchange_kernel");
}

void count(uint64_t* device_count, volatile ProgressWords* progress, cudaStream_t stream) {
  count_kernel<<<1, 1, 0, stream>>>(device_count, progress);
  check_cuda(cudaGetLastError(), "count_kernel");
}

}  // namespace sinter::cuda
