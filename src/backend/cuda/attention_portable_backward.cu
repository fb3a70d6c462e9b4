// Attention backward for any GPU since sm_80: a pass for the rows' statistics, a kernel by blocks of keys, and either a
// pass that rounds dq, which the blocks have added up in fp32, or, where sums must not depend on the order of blocks, a
// kernel by blocks of queries that computes dq again from the start (7 products instead of 5).
//
// Note [Two halves of a block]: keys and values stay, queries and dO stream by. Each warp of the first half has a
// partner in the second, both for the same 16 or 32 keys. With everything transposed (rows are keys) they do the
// same work on exchanged operands:
//            first product     then                     second product
//   first    Sᵀ  = K · Qᵀ      Pᵀ = exp(Sᵀ − L)         dV += Pᵀ · dO
//   second   dPᵀ = V · dOᵀ     dSᵀ = Pᵀ ∘ (dPᵀ − D)     dK += dSᵀ · Q
// What the middle column makes is the left operand of the last one without leaving registers. Only Pᵀ goes to the
// partner and dSᵀ to all warps for dQ += dS · K, through one buffer: a thread of the second half finds Pᵀ where it will
// put dSᵀ. Two warps with one gradient each, instead of one with both, can have twice the keys in the same registers,
// and so read every query half as often from shared memory, which would bind otherwise.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_portable.cuh"
#include "backend/workspace.h"

namespace sinter::cuda {

namespace portable {

namespace {

// ---- before and after ----

// Four elements of a row; those beyond the head dimension are zero.
template <class T>
__device__ __forceinline__ void load_four(const T* row, int column, const Arguments& a, float (&v)[4]) {
  if (a.vectors && column + 4 <= a.dim) {
    unpack(load_pack<T, 4>(row + column), v);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = column + e < a.dim ? to_float(row[column + e]) : 0.0f;
  }
}

// A group of lanes per row, padding included: D = Σ do·o, L in powers of two, dq = 0. A row that sees nothing, or that
// does not exist, gets L = +inf, which makes every p zero.
template <class T> __global__ void __launch_bounds__(256) prepare(const __grid_constant__ Arguments a, int columns) {
  int lanes = 4;
  while (4 * lanes < columns) lanes *= 2;
  int64_t row = (int64_t(blockIdx.x) * 256 + threadIdx.x) / lanes;
  if (row >= int64_t(a.batches) * a.heads * a.padded_queries) return;  // lanes divides 32: whole groups
  int column = threadIdx.x % lanes * 4, query = int(row % a.padded_queries), index = int(row / a.padded_queries);
  float delta = 0.0f, l2 = infinity;
  if (query < a.queries) {
    int batch = index / a.heads, head = index % a.heads;
    float o[4], d_o[4];
    load_four(a.o.at<const T>(batch, head) + int64_t(query) * a.o.row, column, a, o);
    load_four(a.d_o.at<const T>(batch, head) + int64_t(query) * a.d_o.row, column, a, d_o);
#pragma unroll
    for (int e = 0; e < 4; ++e) delta += o[e] * d_o[e];
    float l = a.logsumexp[batch * a.l_batch + head * a.l_head + query * a.l_row];
    if (l != -infinity) l2 = l * log2_e;
  }
  for (int mask = lanes / 2; mask > 0; mask >>= 1) delta += __shfl_xor_sync(~0u, delta, mask);
  if (column == 0) a.l2[row] = l2, a.delta[row] = delta;
  if (!a.separate_dq && column < columns) *reinterpret_cast<float4*>(a.dq_sum + row * columns + column) = {0, 0, 0, 0};
}

template <class T> __global__ void __launch_bounds__(256) finish(const __grid_constant__ Arguments a, int columns) {
  int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  int per_row = columns / 4, column = int(i % per_row) * 4;
  int64_t row = i / per_row;
  if (row >= int64_t(a.batches) * a.heads * a.queries || column >= a.dim) return;
  int index = int(row / a.queries), query = int(row % a.queries);
  float4 sum =
      *reinterpret_cast<const float4*>(a.dq_sum + (int64_t(index) * a.padded_queries + query) * columns + column);
  T* to = a.dq.at<T>(index / a.heads, index % a.heads) + int64_t(query) * a.dq.row;
  store_result(to, column, sum.x * a.scale, sum.y * a.scale, a);
  store_result(to, column + 2, sum.z * a.scale, sum.w * a.scale, a);
}

// ---- by blocks of keys ----

template <Math M_, int D_, bool Wide_> struct BackwardTiling {
  static constexpr Math M = M_;
  static constexpr int D = D_;
  static constexpr bool wide = Wide_;
  static constexpr int fragments = wide ? 2 : 1;                          // keys of a warp / 16
  static constexpr int warps = 4;                                         // of each half; narrow: at most
  static constexpr int queries = wide && !is_fp32<M> ? 64 : 32;           // of a step
  static constexpr int group = wide && D > 64 ? 2 : D >= 64 ? 4 : D / 8;  // see product_of_columns
  // A warp's part of dq / 16: rows and columns.
  static constexpr int dq_rows = D < 96                           ? (wide && !is_fp32<M> && D == 64 ? 2 : 1)
                                 : D == 96 && wide && !is_fp32<M> ? 1
                                                                  : 2;
  static constexpr int dq_columns = wide && !is_fp32<M> ? (D == 96 ? 3 : D == 128 ? 2 : 1) : 1;
  static constexpr bool one_step = wide && D > 96;  // of queries in a stage: no registers are left to count them
  // dQ of a stage is computed in the next one, from a second buffer of dS: a barrier a stage instead of two a step, and
  // more that is independent between them.
  static constexpr bool deferred = wide && !is_fp32<M>;
  static constexpr bool keep_left = wide && !is_fp32<M> && D <= 64;  // keys or values of a warp stay in registers
};

// Bytes from one row to the next where dS is handed over. 16-bit: a row is a key, as in registers, so that neighbours
// are stored together; ldmatrix transposes it back. fp32: a row is a query, because nothing would transpose it.
template <class Tiling>
constexpr int ds_row = is_fp32<Tiling::M> ? (Tiling::warps * 16 * Tiling::fragments + 4) * 4
                                          : (Tiling::queries + 8) * 2;

template <class Tiling> int64_t backward_bytes(int warps, int stage, int buffers) {
  int64_t keys = warps * 16 * Tiling::fragments;
  return 2 * (keys + int64_t(buffers) * stage) * row_bytes<Tiling::M, Tiling::D> + buffers * stage * 8 +
         (is_fp32<Tiling::M> ? Tiling::queries : keys) * ds_row<Tiling> *
             (Tiling::deferred ? 2 * stage / Tiling::queries : 1);
}

template <class Tiling>
__global__ void __launch_bounds__(Tiling::warps * 64, 1) backward(const __grid_constant__ Arguments a) {
  constexpr Math M = Tiling::M;
  constexpr int D = Tiling::D, MF = Tiling::fragments, Q = Tiling::queries, N = Q / 8, row = row_bytes<M, D>;
  constexpr int size = element_bytes<M>;
  using T = Element<M>;
  extern __shared__ __align__(16) unsigned char shared[];

  const int threads = Tiling::wide ? Tiling::warps * 64 : int(blockDim.x), warps = threads / 64, keys = warps * 16 * MF;
  const int stage = Tiling::one_step ? Q : a.stage;
  const int thread = threadIdx.x, lane = thread % 32;
  const bool second = thread / 32 >= warps;
  const int warp = second ? thread / 32 - warps : thread / 32;
  const int g = lane / 4, t = lane % 4;
  int block, index;
  a.order.place(blockIdx.x, block, index);
  const int batch = index / a.kv_heads, kv_head = index % a.kv_heads, heads_per_kv = a.heads / a.kv_heads;

  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + keys * row, stream = v_tile + keys * row;
  const int buffer_bytes = 2 * stage * row + stage * 8;  // queries, dO, L, D
  const uint32_t ds_tile = stream + a.buffers * buffer_bytes;
  const int first_key = block * keys, my_key = first_key + warp * 16 * MF;
  // The first query that sees a key of this block is in the first stage.
  const int first_stage = max(0, first_key - a.offset) / stage * stage;

  int load_query = first_stage, load_head = kv_head * heads_per_kv, load_buffer = 0;
  const int last_head = load_head + heads_per_kv;
  int query = first_stage, head = load_head;
  bool more = first_stage < a.queries;
  auto load_next = [&] {
    if (!more) return;
    const uint32_t to = stream + load_buffer * buffer_bytes;
    fill<M, D>(to, a.q.at<const T>(batch, load_head) + int64_t(load_query) * a.q.row, a.q.row, stage,
               a.queries - load_query, a, thread, threads);
    fill<M, D>(to + stage * row, a.d_o.at<const T>(batch, load_head) + int64_t(load_query) * a.d_o.row, a.d_o.row,
               stage, a.queries - load_query, a, thread, threads);
    const int64_t statistics = (int64_t(batch) * a.heads + load_head) * a.padded_queries + load_query;
    if (thread < stage / 4) copy_async(to + 2 * stage * row + thread * 16, a.l2 + statistics + thread * 4, true);
    else if (thread < stage / 2)
      copy_async(to + 2 * stage * row + thread * 16, a.delta + statistics + thread * 4 - stage, true);
    commit_copies();
    load_buffer = a.buffers - 1 - load_buffer;
    load_query += stage;
    if (load_query >= a.queries) load_query = first_stage, ++load_head, more = load_head < last_head;
  };
  fill<M, D>(k_tile, a.k.at<const T>(batch, kv_head) + int64_t(first_key) * a.k.row, a.k.row, keys, a.keys - first_key,
             a, thread, threads);
  fill<M, D>(v_tile, a.v.at<const T>(batch, kv_head) + int64_t(first_key) * a.v.row, a.v.row, keys, a.keys - first_key,
             a, thread, threads);
  commit_copies();
  const bool any = more;
  load_next();

  const LeftTile<M, D> left{(second ? v_tile : k_tile) + warp * 16 * MF * row + rows_first(lane, row)};
  Operand<M> kept[Tiling::keep_left ? D / step<M> : 1][MF];
  if constexpr (Tiling::keep_left) {
    wait_for_copies();
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < D / step<M>; ++kk)
#pragma unroll
      for (int i = 0; i < MF; ++i) kept[kk][i] = left(kk, i);
  }

  float gradient[MF][D / 8][4];  // dV or dK
  clear(gradient);
  // Where a thread puts the first of its pᵀ and dsᵀ; see Note [Fragments] for the order of fp32 keys.
  const uint32_t my_first_ds = ds_tile + (is_fp32<M> ? 2 * t * ds_row<Tiling> + (warp * 16 * MF + g / 2 + g % 2 * 4) * 4
                                                     : (warp * 16 * MF + g) * ds_row<Tiling> + 2 * t * size);

  // dQ += dS · K for the step whose dS lies at `from`; first_row: its first row among the sums.
  auto add_to_dq = [&](uint32_t from, int64_t first_row) {
    constexpr int R = Tiling::dq_rows, C = Tiling::dq_columns, across = D / 16 / C, parts = Q / 16 / R * across;
    for (int part = thread / 32; part < parts; part += 2 * warps) {
      const int part_row = part / across * R * 16, part_column = part % across * C * 16;
      float dq[R][2 * C][4];
      clear(dq);
      const uint32_t ds = from + (is_fp32<M> ? part_row * ds_row<Tiling> + rows_first(lane, ds_row<Tiling>)
                                             : part_row * size + halves_first(lane, ds_row<Tiling>));
      const uint32_t k = k_tile + part_column * size + columns_at<M>(lane, row);
#pragma unroll
      for (int w = 0; w < warps; ++w)
#pragma unroll
        for (int kk = 0; kk < 16 * MF / step<M>; ++kk) {
          const int at_key = w * 16 * MF + kk * step<M>;
          Operand<M> left_ds[R], right_k[C];
#pragma unroll
          for (int i = 0; i < R; ++i) {
            uint32_t raw[4];
            if constexpr (is_fp32<M>) load_matrices(raw, ds + 16 * i * ds_row<Tiling> + at_key * 4);
            else load_matrices_transposed(raw, ds + at_key * ds_row<Tiling> + 16 * i * size);
            left_ds[i] = operand<M>(raw);
          }
#pragma unroll
          for (int j = 0; j < C; ++j) {
            uint32_t raw[4];
            load_columns<M>(raw, k + at_key * row + j * 16 * size, row);
            right_k[j] = operand<M>(raw);
          }
          multiply<M>(dq, 0, left_ds, right_k);
        }
      float* to = a.dq_sum + (first_row + part_row + g) * D + part_column + 2 * t;
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < 2 * C; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) add_pair(to + (16 * i + 8 * r) * D + 8 * j, dq[i][j][2 * r], dq[i][j][2 * r + 1]);
    }
  };

  // Deferred: dS of the steps of a stage lies at `now`, that of the stage before in the other half.
  constexpr int step_ds = Tiling::warps * 16 * MF * ds_row<Tiling>;
  const int stage_ds = stage / Q * step_ds;
  int now = 0;
  int64_t earlier_row = -1;  // the first row of the stage before among the sums
  int buffer = 0;
  for (bool running = any; running;) {
    wait_for_copies();
    __syncthreads();
    const uint32_t q_tile = stream + buffer * buffer_bytes, do_tile = q_tile + stage * row;
    const uint32_t statistics = q_tile + 2 * stage * row + (second ? stage * 4 : 0) + 2 * t * 4;
    if (a.buffers == 2) load_next();
    int step_query = query;
    do {
      const int at = step_query - query;
      constexpr bool early = Tiling::deferred && D <= 64;   // has registers for it
      const bool due = !a.separate_dq && earlier_row >= 0;  // dQ of the stage before
      const uint32_t my_ds = my_first_ds + (Tiling::deferred ? now + at / Q * step_ds : 0);
      const uint32_t earlier_ds = ds_tile + stage_ds - now + at / Q * step_ds;
      const int pair =
          1 + warp + (Tiling::deferred ? at / Q * warps : 0);  // a barrier for each step between those of the block
      // Some query of this step sees some key of the warp.
      const bool active = my_key < a.keys && my_key <= step_query + Q - 1 + a.offset;
      if (active) {
        float x[MF][N][4];
        const uint32_t along = (second ? do_tile : q_tile) + at * row + halves_first(lane, row);
        if constexpr (Tiling::keep_left)
          product_of_rows<M, D>(
              x, [&](int kk, int i) { return kept[kk][i]; }, along);
        else product_of_rows<M, D>(x, left, along);
        if (!second) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float2 l = load_shared_pair(statistics + (at + 8 * j) * 4);
#pragma unroll
            for (int i = 0; i < MF; ++i)
#pragma unroll
              for (int e = 0; e < 4; ++e) x[i][j][e] = fast_exp2(x[i][j][e] * a.factor - (e % 2 ? l.y : l.x));
          }
          if (my_key + 16 * MF > min(a.keys, step_query + a.offset + 1)) {
#pragma unroll
            for (int i = 0; i < MF; ++i)
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                const int key = my_key + 16 * i + 8 * r + g;
                const int first_seeing = key < a.keys ? key - a.offset - step_query - 2 * t : INT_MAX;
#pragma unroll
                for (int j = 0; j < N; ++j)
#pragma unroll
                  for (int e = 0; e < 2; ++e)
                    if (8 * j + e < first_seeing) x[i][j][2 * r + e] = 0.0f;
              }
          }
        } else {
          if constexpr (early)  // while the partner takes exponentials
            if (due) add_to_dq(earlier_ds, earlier_row + at);
          pair_wait(pair);
        }
#pragma unroll
        for (int i = 0; i < MF; ++i)
#pragma unroll
          for (int j = 0; j < N; ++j) {
            float2 delta = {};
            if (second) delta = load_shared_pair(statistics + (at + 8 * j) * 4);
            if constexpr (is_fp32<M>) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const uint32_t place = my_ds + (8 * j + e % 2) * ds_row<Tiling> + (16 * i + e / 2 * 8) * 4;
                if (second)
                  x[i][j][e] = __uint_as_float(load_shared(place)) * (x[i][j][e] - (e % 2 ? delta.y : delta.x));
                store_shared(place, __float_as_uint(x[i][j][e]));
              }
            } else {
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                const uint32_t place = my_ds + (16 * i + 8 * r) * ds_row<Tiling> + 8 * j * size;
                if (second) {
                  const uint32_t both = load_shared(place);
                  const float2 p = M == Math::bf16 ? unpack_bf16(both) : unpack_f16(both);
                  x[i][j][2 * r] = p.x * (x[i][j][2 * r] - delta.x);
                  x[i][j][2 * r + 1] = p.y * (x[i][j][2 * r + 1] - delta.y);
                }
                store_shared(place, pack<M>(x[i][j][2 * r], x[i][j][2 * r + 1]));
              }
            }
          }
        if (!second) pair_arrive(pair);
        product_of_columns<M, D, Tiling::group>(gradient, x,
                                                (second ? q_tile : do_tile) + at * row + columns_at<M>(lane, row));
      } else {
        pair_idle();
        if (second) {
#pragma unroll
          for (int i = 0; i < MF; ++i)
#pragma unroll
            for (int j = 0; j < N; ++j)
#pragma unroll
              for (int e = 0; e < (is_fp32<M> ? 4 : 2); ++e)
                store_shared(is_fp32<M> ? my_ds + (8 * j + e % 2) * ds_row<Tiling> + (16 * i + e / 2 * 8) * 4
                                        : my_ds + (16 * i + 8 * e) * ds_row<Tiling> + 8 * j * size,
                             0u);
        }
      }
      step_query += Q;
      const bool last = Tiling::one_step || at + Q >= stage;
      if constexpr (Tiling::deferred) {
        if (due && !(early && second && active)) add_to_dq(earlier_ds, earlier_row + at);
      } else {
        __syncthreads();  // dS is complete, and nobody uses these queries any more
        if (last && a.buffers == 1) load_next();
        if (!a.separate_dq) add_to_dq(ds_tile, (int64_t(batch) * a.heads + head) * a.padded_queries + query + at);
        if (!last) __syncthreads();  // dS is free again
      }
    } while (!Tiling::one_step && step_query - query < stage);
    if constexpr (Tiling::deferred) {
      now = stage_ds - now;
      earlier_row = (int64_t(batch) * a.heads + head) * a.padded_queries + query;
      if (a.buffers == 1) {
        __syncthreads();
        load_next();
      }
    }
    buffer = a.buffers - 1 - buffer;
    query += stage;
    if (query >= a.queries) query = first_stage, ++head, running = head < last_head;
  }

  if constexpr (Tiling::deferred) {
    __syncthreads();
    if (!a.separate_dq && earlier_row >= 0)
      for (int at = 0; at < stage; at += Q) add_to_dq(ds_tile + stage_ds - now + at / Q * step_ds, earlier_row + at);
  }

  const float factor = second ? a.scale : 1.0f;
  const Strided& place = second ? a.dk : a.dv;
  T* out = place.at<T>(batch, kv_head);
#pragma unroll
  for (int i = 0; i < MF; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = my_key + 16 * i + 8 * r + g;
      if (key >= a.keys) continue;
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
        store_result(out + int64_t(key) * place.row, 8 * j + 2 * t, gradient[i][j][2 * r] * factor,
                     gradient[i][j][2 * r + 1] * factor, a);
    }
}

// ---- dq by blocks of queries ----

template <Math M_, int D_> struct QueryTiling {
  static constexpr Math M = M_;
  static constexpr int D = D_;
  static constexpr int warps = 8;  // at most
  static constexpr int keys = 32;
  static constexpr int group = D >= 64 ? 4 : D / 8;
};

template <class Tiling> int64_t queries_bytes(int warps, int stage, int buffers) {
  return 2 * (warps * 16 + int64_t(buffers) * stage) * row_bytes<Tiling::M, Tiling::D>;
}

template <class Tiling>
__global__ void __launch_bounds__(Tiling::warps * 32, 1) backward_queries(const __grid_constant__ Arguments a) {
  constexpr Math M = Tiling::M;
  constexpr int D = Tiling::D, N = Tiling::keys / 8, row = row_bytes<M, D>;
  using T = Element<M>;
  extern __shared__ __align__(16) unsigned char shared[];

  const int threads = blockDim.x, rows = threads / 32 * 16, thread = threadIdx.x, warp = thread / 32,
            lane = thread % 32;
  int block, index;
  a.order.place(blockIdx.x, block, index);
  const int batch = index / a.heads, head = index % a.heads, kv_head = head / (a.heads / a.kv_heads);
  const uint32_t q_tile = shared_address(shared), do_tile = q_tile + rows * row, stream = do_tile + rows * row;
  const int first_row = block * rows, my_row = first_row + warp * 16, buffer_bytes = 2 * a.stage * row;
  const int block_sees = min(a.keys, max(0, min(first_row + rows, a.queries) + a.offset));
  const int warp_sees = min(a.keys, my_row + 16 + a.offset), all_see = min(a.keys, my_row + a.offset + 1);
  const T* k = a.k.at<const T>(batch, kv_head);
  const T* v = a.v.at<const T>(batch, kv_head);

  auto load = [&](int first, int buffer) {
    const uint32_t to = stream + buffer * buffer_bytes;
    fill<M, D>(to, k + int64_t(first) * a.k.row, a.k.row, a.stage, a.keys - first, a, thread, threads);
    fill<M, D>(to + a.stage * row, v + int64_t(first) * a.v.row, a.v.row, a.stage, a.keys - first, a, thread, threads);
    commit_copies();
  };
  fill<M, D>(q_tile, a.q.at<const T>(batch, head) + int64_t(first_row) * a.q.row, a.q.row, rows, a.queries - first_row,
             a, thread, threads);
  fill<M, D>(do_tile, a.d_o.at<const T>(batch, head) + int64_t(first_row) * a.d_o.row, a.d_o.row, rows,
             a.queries - first_row, a, thread, threads);
  if (block_sees > 0) load(0, 0);

  float l2[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = my_row + 8 * r + lane / 4;
    const int64_t at = int64_t(index) * a.padded_queries + query;
    l2[r] = query < a.queries ? a.l2[at] : infinity;
    delta[r] = query < a.queries ? a.delta[at] : 0.0f;
  }
  const LeftTile<M, D> left_q{q_tile + warp * 16 * row + rows_first(lane, row)};
  const LeftTile<M, D> left_do{do_tile + warp * 16 * row + rows_first(lane, row)};
  float dq[1][D / 8][4];
  clear(dq);

  int buffer = 0;
  for (int stage = 0; stage < block_sees; stage += a.stage) {
    wait_for_copies();
    __syncthreads();
    if (a.buffers == 2 && stage + a.stage < block_sees) load(stage + a.stage, 1 - buffer);
    const uint32_t k_tile = stream + buffer * buffer_bytes, v_tile = k_tile + a.stage * row;
    for (int first = stage; first < min(warp_sees, stage + a.stage); first += Tiling::keys) {
      float s[1][N][4], dp[1][N][4];
      product_of_rows<M, D>(s, left_q, k_tile + (first - stage) * row + halves_first(lane, row));
      product_of_rows<M, D>(dp, left_do, v_tile + (first - stage) * row + halves_first(lane, row));
      const bool masked = first + Tiling::keys > all_see;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int sees = min(a.keys, my_row + 8 * r + lane / 4 + a.offset + 1) - first - lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[0][j][2 * r + e];
            const float p = fast_exp2(x * a.factor - l2[r]);
            x = masked && 8 * j + e >= sees ? 0.0f : p * (dp[0][j][2 * r + e] - delta[r]);
          }
      }
      product_of_columns<M, D, Tiling::group>(dq, s, k_tile + (first - stage) * row + columns_at<M>(lane, row));
    }
    if (a.buffers == 2) {
      buffer = 1 - buffer;
    } else if (stage + a.stage < block_sees) {
      __syncthreads();
      load(stage + a.stage, 0);
    }
  }

  T* out = a.dq.at<T>(batch, head);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = my_row + 8 * r + lane / 4;
    if (query >= a.queries) continue;
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
      store_result(out + int64_t(query) * a.dq.row, 8 * j + lane % 4 * 2, dq[0][j][2 * r] * a.scale,
                   dq[0][j][2 * r + 1] * a.scale, a);
  }
}

// ---- host side ----

constexpr const char* name = "attention_backward (portable)";

template <Math M, int D> void run_keys(const KernelCall& call, Arguments a, int64_t limit) {
  using Wide = BackwardTiling<M, D, true>;
  using Narrow = BackwardTiling<M, D, false>;
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  bool wide = false;
  int warps = 4;
  if (attrs.tile == 0) {
    constexpr int wide_keys = Wide::warps * 16 * Wide::fragments;
    constexpr int two_steps = Wide::deferred && !Wide::one_step ? 2 * Wide::queries : Wide::queries;
    a.stage = backward_bytes<Wide>(Wide::warps, two_steps, 2) <= limit ? two_steps : Wide::queries;
    a.buffers = backward_bytes<Wide>(Wide::warps, a.stage, 2) <= limit ? 2 : 1;
    wide = 2 * ceil_div(a.keys, wide_keys) * a.kv_heads * a.batches >= 3 * multiprocessors() &&
           backward_bytes<Wide>(Wide::warps, a.stage, a.buffers) <= limit;
    if (!wide) {
      a.stage = Narrow::queries;
      a.buffers = backward_bytes<Narrow>(warps, a.stage, 2) <= limit ? 2 : 1;
      if (backward_bytes<Narrow>(warps, a.stage, a.buffers) > limit) {
        warps = 2;
        a.buffers = backward_bytes<Narrow>(warps, a.stage, 2) <= limit ? 2 : 1;
      }
    }
  } else {
    wide = attrs.tile == 128;
    if (!wide) warps = attrs.tile / 16;
    a.stage = wide && Wide::one_step ? Wide::queries : attrs.tile;
    a.buffers =
        (wide ? backward_bytes<Wide>(warps, a.stage, 2) : backward_bytes<Narrow>(warps, a.stage, 2)) <= limit ? 2 : 1;
  }
  const int64_t bytes =
      wide ? backward_bytes<Wide>(warps, a.stage, a.buffers) : backward_bytes<Narrow>(warps, a.stage, a.buffers);
  if (bytes > limit) refuse_tile(name, attrs.tile, bytes, limit);
  const int64_t blocks = ceil_div(a.keys, warps * 16 * (wide ? Wide::fragments : Narrow::fragments));
  if (blocks == 0) return;
  a.order = order_of(blocks, a.kv_heads * a.batches, attrs.causal, false);
  launch_large(name, wide ? backward<Wide> : backward<Narrow>, blocks * a.kv_heads * a.batches, warps * 64, bytes,
               stream_of(call), a);
}

template <Math M, int D> void run_queries(const KernelCall& call, Arguments a, int64_t limit) {
  using Tiling = QueryTiling<M, D>;
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  int warps = attrs.tile ? attrs.tile / 16 : 4;
  a.stage = attrs.tile ? attrs.tile : 64;
  auto bytes = [&] { return queries_bytes<Tiling>(warps, a.stage, a.buffers); };
  a.buffers = 2;
  if (bytes() > limit) a.buffers = 1;
  if (attrs.tile == 0 && bytes() > limit) a.stage = 32;
  if (attrs.tile == 0 && bytes() > limit) warps = 2;
  if (bytes() > limit) refuse_tile(name, attrs.tile, bytes(), limit);
  const int64_t blocks = ceil_div(a.queries, warps * 16);
  a.order = order_of(blocks, a.heads * a.batches, attrs.causal, true);
  launch_large(name, backward_queries<Tiling>, blocks * a.heads * a.batches, warps * 32, bytes(), stream_of(call), a);
}

}  // namespace

}  // namespace portable

void portable_attention_backward(const KernelCall& call) {
  using namespace portable;
  const TensorRef &q = call.in[0], &o = call.in[3], &l = call.in[4], &d_o = call.in[5];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  Arguments a = arguments_of(name, call);
  for (const TensorRef* t : {&o, &d_o, &call.out[0], &call.out[1], &call.out[2]})
    if (t->dtype != q.dtype) refuse(name, "o, do and the gradients must have q's element type");
  if (l.dtype != DType::f32) refuse(name, "L must be fp32");
  a.o = strided(name, o), a.d_o = strided(name, d_o);
  a.dq = strided(name, call.out[0]), a.dk = strided(name, call.out[1]), a.dv = strided(name, call.out[2]);
  a.vectors = a.vectors && whole_chunks(o) && whole_chunks(d_o);
  a.paired = whole_pairs(call.out[0]) && whole_pairs(call.out[1]) && whole_pairs(call.out[2]);
  a.logsumexp = l.as<float>();
  a.l_batch = l.strides[0], a.l_head = l.strides[1], a.l_row = l.strides[2];
  a.separate_dq = attrs.deterministic;
  a.padded_queries = int(workspace::padded_queries(a.queries));
  const int columns = int(workspace::padded_head_dim(a.dim));
  const int64_t rows = int64_t(a.batches) * a.heads * a.padded_queries;
  if (call.workspace_bytes < rows * (2 + columns) * 4) refuse(name, "the workspace is too small");
  a.l2 = static_cast<float*>(call.workspace), a.delta = a.l2 + rows, a.dq_sum = a.delta + rows;

  const int64_t limit = shared_memory_limit(name);
  cudaStream_t stream = stream_of(call);
  with_float_type(name, q.dtype, [&](auto type) {
    using T = decltype(type);
    int lanes = 4;
    while (4 * lanes < columns) lanes *= 2;
    if (rows > 0) launch(name, prepare<T>, grid_of(name, ceil_div(rows * lanes, 256)), 256, stream, a, columns);
  });
  auto run = [&](auto m, auto d) {
    if (a.batches > 0 && a.kv_heads > 0) run_keys<m(), d()>(call, a, limit);
    if (a.separate_dq && rows > 0) run_queries<m(), d()>(call, a, limit);
  };
  if (q.dtype == DType::bf16) with_tile_dim<Math::bf16>(a.dim, run);
  else if (q.dtype == DType::f16) with_tile_dim<Math::f16>(a.dim, run);
  else if (call.math == MathMode::tf32) with_tile_dim<Math::tf32>(a.dim, run);
  else with_tile_dim<Math::tf32x3>(a.dim, run);
  if (!a.separate_dq)
    with_float_type(name, q.dtype, [&](auto type) {
      using T = decltype(type);
      int64_t pieces = int64_t(a.batches) * a.heads * a.queries * (columns / 4);
      if (pieces > 0) launch(name, finish<T>, grid_of(name, ceil_div(pieces, 256)), 256, stream, a, columns);
    });
}

}  // namespace sinter::cuda
