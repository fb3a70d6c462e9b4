// rms_norm and layer_norm, backward:
//   x̂ = (x − mean)·rroot, g = w∘dy, dx = rroot·(g − mean(g) − x̂·mean(g∘x̂))  (no mean, no mean(g) in rms_norm)
//   dw = Σ over rows of dy∘x̂, db = Σ over rows of dy
// Rows are dealt to groups (workspace.h), one block each; a block sums its rows' share of dw in registers and leaves it
// in the workspace, and a second kernel adds the groups: always in the same order, so always the same bits.
// Speed of light: rows · d · (x + dy + dx, dx twice when it accumulates) bytes.
#include "backend/cuda/norm.cuh"
#include "backend/cuda/norm_groups.h"
#include "backend/workspace.h"

namespace sinter::cuda {

namespace {

struct NormBackwardArgs {
  const void *x, *w, *dy;
  const float *mean, *rroot;  // mean null: rms_norm
  void* dx;
  float* partial;  // [groups][d] of dw, then the same of db
  int64_t rows, x_stride, dy_stride, dx_stride;
  int d, groups;
  DType x_type, w_type, dy_type, dx_type;
  bool accumulate;
};

// There are about two blocks per multiprocessor, and both must fit. Several rows are in work at once in each, to have
// enough loads in flight: a row belongs to a warp, to four warps, or (when it is long) to the block.
template <int K, int ThreadsPerRow> constexpr int backward_threads = K <= 2 && ThreadsPerRow < 256 ? 512 : 256;

template <class F> bool with_backward_shape(int64_t d, F&& f) {
  if (d % 4 == 0 && d > 768 && d <= 1024) return f(Constant<2>{}, Constant<128>{}), true;
  if (d % 4 == 0 && d > 1024 && d <= 2048) return f(Constant<4>{}, Constant<128>{}), true;
  return with_row_shape(d, f);
}

// As row_sum; four warps meet at a barrier of their own, because others may have more rows.
template <int ThreadsPerRow, class T> __device__ __forceinline__ T backward_sum(T x, T* slots) {
  if constexpr (ThreadsPerRow != 128) return row_sum<ThreadsPerRow>(x, slots);
  x = warp_reduce(x, Add{});
  int four = threadIdx.x / 128;
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = x;
  asm volatile("bar.sync %0, 128;" ::"r"(four + 1) : "memory");
  x = slots[4 * four + threadIdx.x % 4];
  x = Add{}(x, shuffle_xor(x, 2));
  return Add{}(x, shuffle_xor(x, 1));
}

template <bool Centred, int K, int ThreadsPerRow>
__global__ void __launch_bounds__(backward_threads<K, ThreadsPerRow>)
    norm_backward(const __grid_constant__ NormBackwardArgs a) {
  constexpr int threads = backward_threads<K, ThreadsPerRow>, row_lanes = threads / ThreadsPerRow;
  __shared__ float2 slots[2][16];
  int lane = threadIdx.x % ThreadsPerRow, row_lane = threadIdx.x / ThreadsPerRow, columns = a.d / 4;
  float dw[K][4] = {}, db[Centred ? K : 1][4] = {};
  int turn = 0;

  for (int64_t row = blockIdx.x + int64_t(a.groups) * row_lane; row < a.rows; row += int64_t(a.groups) * row_lanes) {
    const char* x = row_at(a.x, a.x_type, row, a.x_stride);
    const char* dy = row_at(a.dy, a.dy_type, row, a.dy_stride);
    Raw4 raw_x[K], raw_dy[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int g = lane + k * ThreadsPerRow;
      raw_x[k] = g < columns ? load_raw4(x, a.x_type, g) : Raw4{0, 0, 0, 0};
      raw_dy[k] = g < columns ? load_raw4(dy, a.dy_type, g) : Raw4{0, 0, 0, 0};
    }
    // What dx holds is asked for now, with the rest, though it is needed last.
    char* dx = row_at(a.dx, a.dx_type, row, a.dx_stride);
    Raw4 old[K] = {};
    if (a.accumulate) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        int g = lane + k * ThreadsPerRow;
        if (g < columns) old[k] = load_raw4(dx, a.dx_type, g);
      }
    }
    float rroot = a.rroot[row], mean = Centred ? a.mean[row] : 0.0f;
    float xhat[K][4], g_[K][4];
    float2 sums = {0, 0};  // of g∘x̂ and of g
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int g = lane + k * ThreadsPerRow;
      unpack4(raw_x[k], a.x_type, xhat[k]);
      unpack4(raw_dy[k], a.dy_type, g_[k]);
      if (g >= columns) continue;
      float w[4];
      unpack4(load_raw4(a.w, a.w_type, g), a.w_type, w);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        xhat[k][i] = (xhat[k][i] - mean) * rroot;
        dw[k][i] += g_[k][i] * xhat[k][i];
        if constexpr (Centred) db[k][i] += g_[k][i];
        g_[k][i] *= w[i];
        sums.x += g_[k][i] * xhat[k][i];
        if constexpr (Centred) sums.y += g_[k][i];
      }
    }
    if constexpr (Centred) sums = backward_sum<ThreadsPerRow>(sums, slots[turn]);
    else sums.x = backward_sum<ThreadsPerRow>(sums.x, &slots[turn][0].x);
    turn ^= 1;  // threads that share a row come here equally often
    float c1 = sums.x / a.d, c2 = sums.y / a.d;

#pragma unroll
    for (int k = 0; k < K; ++k) {
      int g = lane + k * ThreadsPerRow;
      if (g >= columns) continue;
      float before[4] = {}, r[4];
      if (a.accumulate) unpack4(old[k], a.dx_type, before);
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = before[i] + rroot * (g_[k][i] - c2 - xhat[k][i] * c1);
      store4(dx, a.dx_type, g, r);
    }
  }

  // The block's share: one warp after another adds to shared memory, then one copy out.
  float* out = a.partial + int64_t(blockIdx.x) * a.d;
  int64_t db_offset = int64_t(a.groups) * a.d;
  if constexpr (row_lanes == 1) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int g = lane + k * ThreadsPerRow;
      if (g >= columns) continue;
      store4(out, DType::f32, g, dw[k]);
      if constexpr (Centred) store4(out + db_offset, DType::f32, g, db[k]);
    }
  } else {
    __shared__ float4 sum[Centred ? 2 : 1][K * ThreadsPerRow];
    for (int warp = 0; warp < row_lanes; ++warp) {
      if (row_lane == warp) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
          int g = lane + k * ThreadsPerRow;
          auto add = [&](float4& s, const float(&v)[4]) {
            if (warp == 0) s = {v[0], v[1], v[2], v[3]};
            else s = {s.x + v[0], s.y + v[1], s.z + v[2], s.w + v[3]};
          };
          add(sum[0][g], dw[k]);
          if constexpr (Centred) add(sum[1][g], db[k]);
        }
      }
      __syncthreads();
    }
    for (int g = threadIdx.x; g < columns; g += threads) {
      reinterpret_cast<float4*>(out)[g] = sum[0][g];
      if constexpr (Centred) reinterpret_cast<float4*>(out + db_offset)[g] = sum[1][g];
    }
  }
}

// Any d, any alignment: one block per group, several passes over each row; partial sums live in the workspace.
__global__ void __launch_bounds__(256) norm_backward_any(const __grid_constant__ NormBackwardArgs a) {
  __shared__ float2 slots[2][8];
  float* dw = a.partial + int64_t(blockIdx.x) * a.d;
  float* db = dw + int64_t(a.groups) * a.d;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += a.groups) {
    const char* x = row_at(a.x, a.x_type, row, a.x_stride);
    const char* dy = row_at(a.dy, a.dy_type, row, a.dy_stride);
    char* dx = row_at(a.dx, a.dx_type, row, a.dx_stride);
    float rroot = a.rroot[row], mean = a.mean ? a.mean[row] : 0.0f;
    bool first = row == blockIdx.x;
    float2 sums = {0, 0};
    for (int i = threadIdx.x; i < a.d; i += 256) {
      float v = load_float(dy, a.dy_type, i), xhat = (load_float(x, a.x_type, i) - mean) * rroot;
      dw[i] = first ? v * xhat : dw[i] + v * xhat;  // each thread owns its columns
      if (a.mean) db[i] = first ? v : db[i] + v;
      v *= load_float(a.w, a.w_type, i);
      sums.x += v * xhat;
      sums.y += v;
    }
    sums = block_reduce<256>(sums, Add{}, slots[turn]);
    turn ^= 1;
    float c1 = sums.x / a.d, c2 = a.mean ? sums.y / a.d : 0.0f;
    for (int i = threadIdx.x; i < a.d; i += 256) {
      float g = load_float(dy, a.dy_type, i) * load_float(a.w, a.w_type, i);
      float xhat = (load_float(x, a.x_type, i) - mean) * rroot, r = rroot * (g - c2 - xhat * c1);
      store_float(dx, a.dx_type, i, a.accumulate ? load_float(dx, a.dx_type, i) + r : r);
    }
  }
}

// out[j] (+)= Σ over groups, 32 columns per block: 32 rows of threads take every 32nd group, then a fixed tree.
__global__ void __launch_bounds__(1024)
    sum_groups(float* out, const float* partial, int groups, int d, bool accumulate) {
  __shared__ float sums[32][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  float s = 0;
  if (column < d)
    for (int g = threadIdx.y; g < groups; g += 32) s += partial[int64_t(g) * d + column];
  sums[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  s = warp_reduce(sums[threadIdx.x][threadIdx.y], Add{});  // warp y now holds column y
  column = blockIdx.x * 32 + threadIdx.y;
  if (threadIdx.x == 0 && column < d) out[column] = accumulate ? out[column] + s : s;
}

}  // namespace

void add_groups(float* out, const float* partial, int groups, int d, bool accumulate, cudaStream_t stream) {
  launch("add_groups", sum_groups, unsigned(ceil_div(d, 32)), dim3(32, 32), stream, out, partial, groups, d,
         accumulate);
}

namespace {

template <bool Centred> void run_norm_backward(const char* name, const KernelCall& call) {
  const TensorRef &w = call.in[1], &rroot = call.in[Centred ? 3 : 2], &dy_ref = call.in[Centred ? 4 : 3];
  Rows x = rows_of(call.in[0]), dy = rows_of(dy_ref), dx = rows_of(call.out[0]);
  need_floats(name, {&call.in[0], &w, &dy_ref, &call.out[0]});
  need_f32(name, {&rroot, &call.in[2], &call.out[1], &call.out[Centred ? 2 : 1]});
  if (x.cols == 0) return;
  int groups = int(x.rows < workspace::norm_groups ? x.rows : workspace::norm_groups);
  NormBackwardArgs a{x.data,
                     w.data,
                     dy.data,
                     Centred ? call.in[2].as<float>() : nullptr,
                     rroot.as<float>(),
                     dx.data,
                     static_cast<float*>(call.workspace),
                     x.rows,
                     x.stride,
                     dy.stride,
                     dx.stride,
                     int(x.cols),
                     groups,
                     x.dtype,
                     w.dtype,
                     dy.dtype,
                     dx.dtype,
                     call.accumulates(0)};
  if (int64_t(sizeof(float)) * groups * x.cols * (Centred ? 2 : 1) > call.workspace_bytes)
    refuse(name, "workspace too small");
  if (groups > 0) {
    bool vectors = x.vectors_of(4) && dy.vectors_of(4) && dx.vectors_of(4) && rows_of(w).vectors_of(4);
    bool done = vectors && with_backward_shape(x.cols, [&](auto k, auto threads_per_row) {
                  // No more blocks than have a row for each of their rows of threads: what they
                  // leave is still to be added up.
                  constexpr int row_lanes = backward_threads<k, threads_per_row> / threads_per_row;
                  groups = a.groups = int(std::min<int64_t>(groups, ceil_div(x.rows, row_lanes)));
                  launch(name, norm_backward<Centred, k, threads_per_row>, groups, backward_threads<k, threads_per_row>,
                         stream_of(call), a);
                });
    if (!done) launch(name, norm_backward_any, groups, 256, stream_of(call), a);
  }
  for (int j = 1; j <= (Centred ? 2 : 1); ++j)
    add_groups(call.out[j].as<float>(), a.partial + (j - 1) * int64_t(groups) * x.cols, groups, int(x.cols),
               call.accumulates(j), stream_of(call));
}

}  // namespace

void rms_norm_backward(const KernelCall& call) { run_norm_backward<false>("rms_norm_backward", call); }
void layer_norm_backward(const KernelCall& call) { run_norm_backward<true>("layer_norm_backward", call); }

}  // namespace sinter::cuda
