// Rows of a table by id, and the sum of gradients back into it.
#include "backend/cuda/device_math.cuh"
#include "backend/workspace.h"

namespace sinter::cuda {

namespace {

struct EmbeddingArgs {
  const void *table, *ids;
  void* y;
  int64_t tokens, vocabulary;
  int d;
  DType table_type, id_type, y_type;
};

// Speed of light: tokens · d · (size of table + size of y) bytes.
template <bool Vectors>
__global__ void __launch_bounds__(512) embedding_forward(const __grid_constant__ EmbeddingArgs a) {
  int64_t token = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (token >= a.tokens) return;
  int64_t id = load<int64_t>(a.ids, a.id_type, token);
  if (id < 0 || id >= a.vocabulary) {  // a fault that shows, instead of someone else's memory
    for (int j = threadIdx.x; j < a.d; j += blockDim.x) store_float(a.y, a.y_type, token * a.d + j, nanf(""));
    return;
  }
  if constexpr (Vectors) {
    int64_t groups = a.d / 4;
    for (int g = threadIdx.x; g < groups; g += blockDim.x) {
      float v[4];
      unpack4(load_raw4(a.table, a.table_type, id * groups + g), a.table_type, v);
      store4(a.y, a.y_type, token * groups + g, v);
    }
  } else {
    for (int j = threadIdx.x; j < a.d; j += blockDim.x)
      store_float(a.y, a.y_type, token * a.d + j, load_float(a.table, a.table_type, id * a.d + j));
  }
}

// Note [Embedding gradient]: several tokens may name one row, and float atomics would add them in any order. So the
// block of a token's first occurrence adds all its occurrences, in order, and the other blocks leave as soon as they
// see an earlier one. Finding them costs a scan of the ids, which lie in L2, in stretches of scan_width. Where there
// are several stretches a bit for each of them and each id says which contain it at all.
// Speed of light without the scan: tokens · d · size of dy read, table · 4 bytes written.
constexpr int threads = 256;
constexpr int scan_width = int(workspace::embedding_stretch),
              scan = scan_width / threads;  // ids per round, and of a thread
constexpr int rows_in_flight = 8;

struct ScatterArgs {
  const void *ids, *dy;
  float* dtable;
  int64_t tokens, vocabulary;
  int d;
  DType id_type, dy_type;
  bool accumulate;
  unsigned* present = nullptr;  // words · stretches: bit `id` of stretch s; null: scan all of them
  int words = 0;
};

__device__ __forceinline__ int64_t id_at(const ScatterArgs& a, int64_t i) {
  return a.id_type == DType::i64 ? static_cast<const int64_t*>(a.ids)[i]
                                 : int64_t(static_cast<const int32_t*>(a.ids)[i]);
}

__global__ void __launch_bounds__(threads) mark_present(const __grid_constant__ ScatterArgs a) {
  int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  int64_t id = i < a.tokens ? id_at(a, i) : -1;
  if (id >= 0 && id < a.vocabulary) atomicOr(a.present + i / scan_width * a.words + id / 32, 1u << id % 32);
}

// Bit s of the result: ids[first + s · threads + thread] is `id`, for positions from `begin` to `end`.
__device__ __forceinline__ unsigned matches(const ScatterArgs& a, int64_t first, int64_t begin, int64_t end,
                                            int64_t id) {
  int64_t found[scan];
#pragma unroll
  for (int s = 0; s < scan; ++s) {
    int64_t i = first + s * threads + threadIdx.x;
    found[s] = i >= begin && i < end ? id_at(a, i) : -1;
  }
  unsigned bits = 0;
#pragma unroll
  for (int s = 0; s < scan; ++s) bits |= unsigned(found[s] == id) << s;
  return bits;
}

// Vector: each thread owns four columns, else one. blockIdx.y walks over wider rows.
template <bool Vectors>
__global__ void __launch_bounds__(threads) embedding_gradient(const __grid_constant__ ScatterArgs a) {
  constexpr int N = Vectors ? 4 : 1, words = scan * threads / 32;
  __shared__ unsigned ballots[words];
  __shared__ int starts[words];
  __shared__ int offsets[scan_width];  // from the round's first position, in order
  __shared__ int total;
  __shared__ unsigned stretches[threads / 32];  // that contain the id

  int64_t token = blockIdx.x, id = id_at(a, token);
  if (id < 0 || id >= a.vocabulary) return;  // the forward pass gave NaN for it
  if (a.present) {
    bool any = int64_t(threadIdx.x) * scan_width < a.tokens &&
               a.present[int64_t(threadIdx.x) * a.words + id / 32] >> id % 32 & 1;
    unsigned ballot = __ballot_sync(~0u, any);
    if (threadIdx.x % 32 == 0) stretches[threadIdx.x / 32] = ballot;
    __syncthreads();
  }
  auto contains = [&](int64_t first) {
    int s = int(first / scan_width);
    return !a.present || stretches[s / 32] >> s % 32 & 1;
  };
  for (int64_t first = 0; first < token; first += scan_width)
    if (contains(first) && __syncthreads_or(matches(a, first, 0, token, id) != 0)) return;

  int column = (blockIdx.y * threads + threadIdx.x) * N;
  bool mine = column < a.d;
  float sum[N] = {};
  auto add_row = [&](const Raw4& raw) {
    float v[4];
    unpack4(raw, a.dy_type, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += v[i];
  };
  auto load_row = [&](int64_t row) -> Raw4 {
    if constexpr (Vectors) return load_raw4(a.dy, a.dy_type, (row * a.d + column) / 4);
    // One element, in the place where unpack4 looks for the first.
    if (a.dy_type == DType::f32) return {static_cast<const uint32_t*>(a.dy)[row * a.d + column], 0, 0, 0};
    return {static_cast<const uint16_t*>(a.dy)[row * a.d + column], 0, 0, 0};
  };
  float* out = a.dtable + id * a.d + column;
  if (mine) {
    if (a.accumulate) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = out[i];
    }
    add_row(load_row(token));
  }

  for (int64_t first = token / scan_width * scan_width; first < a.tokens; first += scan_width) {
    if (!contains(first)) continue;
    unsigned bits = matches(a, first, token + 1, a.tokens, id);
    if (!__syncthreads_or(bits != 0)) continue;
    // An ordered list of the matches: word (s, warp) of the ballots covers positions s · threads + 32 · warp onwards.
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 0; s < scan; ++s) {
      unsigned ballot = __ballot_sync(~0u, (bits >> s) & 1u);
      if (lane == 0) ballots[s * (threads / 32) + warp] = ballot;
    }
    __syncthreads();
    if (warp == 0) {  // exclusive prefix sums of the counts, two words per lane
      static_assert(words == 64);
      int a0 = __popc(ballots[2 * lane]), a1 = __popc(ballots[2 * lane + 1]), running = a0 + a1;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        int before = __shfl_up_sync(~0u, running, step);
        if (lane >= step) running += before;
      }
      starts[2 * lane] = running - a0 - a1;
      starts[2 * lane + 1] = running - a1;
      if (lane == 31) total = running;
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < scan; ++s) {
      int word = s * (threads / 32) + warp;
      if ((bits >> s) & 1u)
        offsets[starts[word] + __popc(ballots[word] & ((1u << lane) - 1u))] = s * threads + int(threadIdx.x);
    }
    __syncthreads();
    int count = total;
    if (mine) {
      for (int k = 0; k < count; k += rows_in_flight) {
        Raw4 raw[rows_in_flight];
#pragma unroll
        for (int r = 0; r < rows_in_flight; ++r)
          if (k + r < count) raw[r] = load_row(first + offsets[k + r]);
#pragma unroll
        for (int r = 0; r < rows_in_flight; ++r)
          if (k + r < count) add_row(raw[r]);
      }
    }
    __syncthreads();  // the list is read; the next round may overwrite it
  }
  if (mine) {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = sum[i];
  }
}

void need_ids(const char* name, const TensorRef& ids) {
  if (ids.dtype != DType::i64 && ids.dtype != DType::i32) refuse(name, "ids must be int64 or int32");
}

}  // namespace

void embedding(const KernelCall& call) {
  const TensorRef &table = call.in[0], &ids = call.in[1], &y = call.out[0];
  need_floats("embedding", {&table, &y});
  need_ids("embedding", ids);
  EmbeddingArgs a{table.data,         ids.data,    y.data,    numel(ids), table.dims[0],
                  int(table.dims[1]), table.dtype, ids.dtype, y.dtype};
  if (a.tokens == 0 || a.d == 0) return;
  bool vectors = rows_of(table).vectors_of(4) && rows_of(y).vectors_of(4);
  RowGrid g = row_grid("embedding", a.tokens, vectors ? a.d / 4 : a.d);
  launch("embedding", vectors ? embedding_forward<true> : embedding_forward<false>, g.grid, g.block, stream_of(call),
         a);
}

void embedding_backward(const KernelCall& call) {
  const TensorRef &ids = call.in[0], &dy = call.in[1], &dtable = call.out[0];
  need_floats("embedding_backward", {&dy});
  need_f32("embedding_backward", {&dtable});
  need_ids("embedding_backward", ids);
  ScatterArgs a{ids.data,  dy.data,  dtable.as<float>(), numel(ids), dtable.dims[0], int(dtable.dims[1]),
                ids.dtype, dy.dtype, call.accumulates(0)};
  if (numel(dtable) == 0) return;
  if (!a.accumulate)
    check_cuda(cudaMemsetAsync(dtable.data, 0, size_t(numel(dtable)) * sizeof(float), stream_of(call)),
               "cudaMemsetAsync");
  if (a.tokens == 0) return;
  if (call.workspace_bytes > 0) {
    a.present = static_cast<unsigned*>(call.workspace);
    a.words = int(ceil_div(a.vocabulary, 32));
    check_cuda(cudaMemsetAsync(a.present, 0, size_t(call.workspace_bytes), stream_of(call)), "cudaMemsetAsync");
    launch("embedding_backward", mark_present, dim3(grid_of("embedding_backward", ceil_div(a.tokens, threads))),
           threads, stream_of(call), a);
  }
  bool vectors = rows_of(dy).vectors_of(4) && a.d % 4 == 0;
  dim3 grid(grid_of("embedding_backward", a.tokens), unsigned(ceil_div(a.d, threads * (vectors ? 4 : 1))));
  launch("embedding_backward", vectors ? embedding_gradient<true> : embedding_gradient<false>, grid, threads,
         stream_of(call), a);
}

}  // namespace sinter::cuda
