// Sums over any set of dimensions. Speed of light: one read of x.
// Three shapes of work, each with a fixed order of additions: rows (the summed elements of one output are neighbours: a
// block or warp per output), columns (the outputs are neighbours: threads side by side, one output each, split over the
// summed index), and one long sum (two kernels, with the partial sums in the workspace).
#include "backend/cuda/device_math.cuh"
#include "backend/workspace.h"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

struct Nest {
  int rank = 0;
  int64_t numel = 1;
  int64_t dims[max_rank] = {}, strides[max_rank] = {};

  void add(int64_t n, int64_t stride) {
    numel *= n;
    if (n == 1) return;
    if (rank > 0 && strides[rank - 1] == n * stride) dims[rank - 1] *= n;
    else dims[rank++] = n;
    strides[rank - 1] = stride;
  }
  int64_t inner_stride() const { return rank ? strides[rank - 1] : 1; }

  __device__ __forceinline__ int64_t offset(int64_t i) const {
    int64_t o = 0;
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      int64_t q = numel <= 0x7fffffff ? int64_t(uint32_t(i) / uint32_t(dims[d])) : i / dims[d];
      o += (i - q * dims[d]) * strides[d];
      i = q;
    }
    return rank ? o + i * strides[0] : o;
  }
};

struct ReduceArgs {
  const void* x;
  void* y;
  DType x_type, y_type;
  bool accumulate;
  Nest kept, summed;
};

template <class A> __device__ __forceinline__ void finish(const ReduceArgs& r, int64_t output, A sum) {
  if (r.accumulate) sum += load<A>(r.y, r.y_type, output);
  store<A>(r.y, r.y_type, output, sum);
}

// Elements begin, begin + step, … of one output's sum, in four chains so that four loads are in flight.
template <class T>
__device__ __forceinline__ float typed_sum(const Nest& nest, const T* x, int64_t begin, int64_t end, int64_t step) {
  float s[4] = {};
  int64_t i = begin;
  for (; i + 3 * step < end; i += 4 * step) {
#pragma unroll
    for (int u = 0; u < 4; ++u) s[u] += to_float(x[nest.offset(i + u * step)]);
  }
  for (; i < end; i += step) s[0] += to_float(x[nest.offset(i)]);
  return (s[0] + s[1]) + (s[2] + s[3]);
}
// The type is looked at once, outside the loop.
template <class A>
__device__ __forceinline__ A strided_sum(const ReduceArgs& r, int64_t base, int64_t begin, int64_t end, int64_t step) {
  if constexpr (std::is_same_v<A, float>) {
    auto typed = [&](const auto* x) { return typed_sum(r.summed, x, begin, end, step); };
    if (r.x_type == DType::f32) return typed(static_cast<const float*>(r.x) + base);
    if (r.x_type == DType::bf16) return typed(static_cast<const bf16_t*>(r.x) + base);
    if (r.x_type == DType::f16) return typed(static_cast<const f16_t*>(r.x) + base);
  }
  A sum = 0;
  for (int64_t i = begin; i < end; i += step) sum += load<A>(r.x, r.x_type, base + r.summed.offset(i));
  return sum;
}

// One output per warp: short sums.
template <class A> __global__ void __launch_bounds__(256) sum_rows_by_warp(const __grid_constant__ ReduceArgs r) {
  int64_t output = int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
  if (output >= r.kept.numel) return;
  A sum = strided_sum<A>(r, r.kept.offset(output), threadIdx.x % 32, r.summed.numel, 32);
  sum = warp_reduce(sum, Add{});
  if (threadIdx.x % 32 == 0) finish(r, output, sum);
}
template <class A> __global__ void __launch_bounds__(256) sum_rows_by_block(const __grid_constant__ ReduceArgs r) {
  __shared__ A slots[8];
  int64_t output = blockIdx.x;
  A sum = strided_sum<A>(r, r.kept.offset(output), threadIdx.x, r.summed.numel, 256);
  sum = block_reduce<256>(sum, Add{}, slots);
  if (threadIdx.x == 0) finish(r, output, sum);
}

// blockDim.x neighbouring outputs; the blockDim.y threads of each take every blockDim.y-th summed element.
template <class A> __global__ void __launch_bounds__(512) sum_columns(const __grid_constant__ ReduceArgs r) {
  __shared__ A sums[512];
  int64_t output = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  bool inside = output < r.kept.numel;
  A sum = 0;
  if (inside) sum = strided_sum<A>(r, r.kept.offset(output), threadIdx.y, r.summed.numel, blockDim.y);
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  for (int n = blockDim.y / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.y < n)
      sums[threadIdx.y * blockDim.x + threadIdx.x] += sums[(threadIdx.y + n) * blockDim.x + threadIdx.x];
  }
  if (inside && threadIdx.y == 0) finish(r, output, sums[threadIdx.x]);
}

// The long sum: partial[block], then their sum.
template <class A> __global__ void __launch_bounds__(256) sum_part(const __grid_constant__ ReduceArgs r, A* partial) {
  __shared__ A slots[8];
  int64_t first = int64_t(blockIdx.x) * 256 + threadIdx.x;
  A sum = strided_sum<A>(r, 0, first, r.summed.numel, int64_t(gridDim.x) * 256);
  sum = block_reduce<256>(sum, Add{}, slots);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
template <class A>
__global__ void __launch_bounds__(256) sum_parts(const __grid_constant__ ReduceArgs r, const A* partial, int count) {
  __shared__ A slots[8];
  A sum = 0;
  for (int i = threadIdx.x; i < count; i += 256) sum += partial[i];
  sum = block_reduce<256>(sum, Add{}, slots);
  if (threadIdx.x == 0) finish(r, 0, sum);
}

template <class A> void run_reduce(const KernelCall& call, const ReduceArgs& r) {
  const char* name = "reduce_sum";
  cudaStream_t stream = stream_of(call);
  int64_t outputs = r.kept.numel, length = r.summed.numel;
  if (outputs == 1 && length >= 8192 && call.workspace_bytes >= int64_t(sizeof(A)) * workspace::partial_sums) {
    // A function of the length alone, so that every machine adds in the same order.
    int64_t parts = ceil_div(length, 256 * 16);
    if (parts > workspace::partial_sums) parts = workspace::partial_sums;
    A* partial = static_cast<A*>(call.workspace);
    launch(name, sum_part<A>, unsigned(parts), 256, stream, r, partial);
    return launch(name, sum_parts<A>, 1, 256, stream, r, partial, int(parts));
  }
  bool columns = r.kept.rank > 0 && (r.summed.rank == 0 || r.kept.inner_stride() < r.summed.inner_stride());
  if (columns) {
    // Narrow tiles (one 32-byte sector) where 32 columns per block would leave the machine empty.
    int64_t sector = 32 / size_of(r.x_type);
    unsigned x = unsigned(outputs < 32 * 256 && length >= 256 ? (sector < 8 ? 8 : sector) : 32), y = 1;
    while (x * y < 512 && y < length) y *= 2;
    return launch(name, sum_columns<A>, grid_of(name, ceil_div(outputs, x)), dim3(x, y), stream, r);
  }
  if (length <= 1024) return launch(name, sum_rows_by_warp<A>, grid_of(name, ceil_div(outputs, 8)), 256, stream, r);
  launch(name, sum_rows_by_block<A>, grid_of(name, outputs), 256, stream, r);
}

}  // namespace

void reduce_sum(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0];
  uint32_t mask = call.attrs.as<ReduceAttrs>().dims;
  ReduceArgs r{x.data, y.data, x.dtype, y.dtype, call.accumulates(0), {}, {}};
  for (int d = 0; d < x.rank; ++d) ((mask >> d) & 1u ? r.summed : r.kept).add(x.dims[d], x.strides[d]);
  if (r.kept.numel == 0) return;
  if (x.dtype == DType::f64 || y.dtype == DType::f64) return run_reduce<double>(call, r);
  if (is_float(x.dtype) || is_float(y.dtype)) return run_reduce<float>(call, r);
  run_reduce<int64_t>(call, r);
}

}  // namespace sinter::cuda
