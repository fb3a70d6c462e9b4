// Attention forward for any GPU since sm_80. A block owns some rows of queries, a warp 16 or 32 of them; keys and
// values stream through shared memory and are never in it together with their successors: while scores are computed the
// values arrive, while probabilities meet the values the next keys do. Two or three blocks share a multiprocessor, so
// that one multiplies while another takes exponentials.
// Speed of light: the tensor cores, 4·N²·D operations (half with a mask), or the special-function unit, N² exponentials
// at 16 per clock and multiprocessor, which binds up to a head dimension of 32.
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_portable.cuh"

namespace sinter::cuda {

namespace portable {

namespace {

// A way to cut the problem. Wide: the most work per byte loaded. Narrow: more blocks where the wide ones would leave
// multiprocessors idle, less shared memory, any number of warps. Where even those leave them idle, two warps share the
// same rows, one for every other 32 keys, and combine their results at the end.
template <Math M_, int D_, bool Wide_> struct ForwardTiling {
  static constexpr Math M = M_;
  static constexpr int D = D_;
  static constexpr bool wide = Wide_;
  static constexpr int fragments = wide ? 2 : 1;  // rows of a warp / 16
  static constexpr int warps = wide ? 4 : 8;      // narrow: at most
  static constexpr int keys = !wide ? 32 : is_fp32<M> ? (D > 32 ? 32 : 64) : D > 64 ? 64 : 96;
  static constexpr int group = D <= 64 || !wide ? D / 8 : 2;  // see product_of_columns
  static constexpr int blocks = wide ? 2 : 1;                 // per multiprocessor: caps registers
};

// What the loop over the keys is for. `weights` also stores the scores, of which the block makes probabilities once
// it knows each row's sum. Its backward pass is the same loop with other operands: q stands for do, k for v, v for k
// and o for dq, and s becomes ds.
enum class Loop : uint8_t { attention, weights, weights_backward };

template <class Tiling> int64_t forward_bytes(int warps, int stage, int buffers) {
  return (int64_t(warps) * 16 * Tiling::fragments + (1 + buffers) * stage) * row_bytes<Tiling::M, Tiling::D>;
}

// rowsum(do∘o) of a lane's rows, my_row + 16i + 8r + lane / 4.
template <int MF>
__device__ __forceinline__ void row_means(float (&mean)[MF][2], int my_row, int batch, int head, int lane,
                                          const Arguments& a) {
#pragma unroll
  for (int i = 0; i < MF; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = my_row + 16 * i + 8 * r + lane / 4;
      float sum = 0.0f;
      if (query < a.queries) {
        const float* grad = a.q.at<const float>(batch, head) + int64_t(query) * a.q.row;
        const float* o = a.stored_o.at<const float>(batch, head) + int64_t(query) * a.stored_o.row;
        for (int d = lane % 4; d < a.dim; d += 4) sum += grad[d] * o[d];
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      mean[i][r] = sum + __shfl_xor_sync(~0u, sum, 2);
    }
}

// Columns c and c + 1 of a row of p or ds, where they exist.
__device__ __forceinline__ float2 read_pair(const float* row, int c, int columns, bool pairs) {
  if (pairs && c + 1 < columns) return *reinterpret_cast<const float2*>(row + c);
  return make_float2(c < columns ? row[c] : 0.0f, c + 1 < columns ? row[c + 1] : 0.0f);
}
__device__ __forceinline__ void write_pair(float* row, int c, int columns, bool pairs, float x, float y) {
  if (pairs && c + 1 < columns) {
    *reinterpret_cast<float2*>(row + c) = make_float2(x, y);
  } else {
    if (c < columns) row[c] = x;
    if (c + 1 < columns) row[c + 1] = y;
  }
}

// Columns of p and ds that are written in a row.
__device__ __forceinline__ int columns_of(int row, const Arguments& a) {
  if (a.strip == 0) return a.keys;
  const int last = min(a.queries, (row / a.strip + 1) * a.strip);
  return min(a.keys, (max(1, last + a.offset) + 63) / 64 * 64);
}

// By a warp: columns from `begin` (a multiple of 4) to `end` become f(what is there), or 0 from `sees` on.
template <class F>
__device__ __forceinline__ void rewrite_row(float* row, int begin, int sees, int end, bool vectors, int lane, F&& f) {
  constexpr int at_once = 4;  // pieces of a lane on their way
  const int whole = vectors ? end / 4 * 4 : begin;
  auto of = [&](float x, int c) { return c < sees ? f(x) : 0.0f; };
  for (int first = begin + lane * 4; first < whole; first += at_once * 128) {
    float4 v[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int c = first + i * 128;
      v[i] = c < min(sees, whole) ? *reinterpret_cast<const float4*>(row + c) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int c = first + i * 128;
      if (c < whole)
        *reinterpret_cast<float4*>(row + c) =
            make_float4(of(v[i].x, c), of(v[i].y, c + 1), of(v[i].z, c + 2), of(v[i].w, c + 3));
    }
  }
  for (int c = max(begin, whole) + lane; c < end; c += 32) row[c] = c < sees ? f(row[c]) : 0.0f;
}

template <class Tiling, Loop L>
__global__ void __launch_bounds__(Tiling::warps * 32, Tiling::blocks) forward(const __grid_constant__ Arguments a) {
  constexpr Math M = Tiling::M;
  constexpr int D = Tiling::D, MF = Tiling::fragments, N = Tiling::keys / 8, row = row_bytes<M, D>;
  using T = Element<M>;
  extern __shared__ __align__(16) unsigned char shared[];

  const int threads = Tiling::wide ? Tiling::warps * 32 : int(blockDim.x);
  const int thread = threadIdx.x, lane = thread % 32;
  const int row_warps = Tiling::wide ? Tiling::warps : threads / 32 / a.halves;
  const int warp = Tiling::wide ? thread / 32 : thread / 32 % row_warps,
            half = Tiling::wide ? 0 : thread / 32 / row_warps;
  const int rows = row_warps * 16 * MF, stage_keys = Tiling::wide ? Tiling::keys : a.stage;
  int block, index;
  a.order.place(blockIdx.x, block, index);
  const int batch = index / a.heads, head = index % a.heads, kv_head = head / (a.heads / a.kv_heads);
  const T* k = a.k.at<const T>(batch, kv_head);
  const T* v = a.v.at<const T>(batch, kv_head);

  const uint32_t q_tile = shared_address(shared), v_tile = q_tile + rows * row, k_tile = v_tile + stage_keys * row;
  const uint32_t other_keys = k_tile ^ (k_tile + stage_keys * row);
  const int first_row = block * rows, my_row = first_row + warp * 16 * MF;
  // Keys that some row of the block sees, keys that all rows of the warp see.
  const int block_sees = min(a.keys, max(0, min(first_row + rows, a.queries) + a.offset));
  const int all_see = min(a.keys, my_row + a.offset + 1);

  uint32_t next_keys = k_tile;
  auto load_keys = [&](int first) {
    if (first < block_sees) fill<M, D>(next_keys, k, a.k.row, stage_keys, a.keys - first, a, thread, threads);
    k += int64_t(stage_keys) * a.k.row;
    commit_copies();
  };
  auto load_values = [&](int first) {
    fill<M, D>(v_tile, v, a.v.row, stage_keys, a.keys - first, a, thread, threads);
    v += int64_t(stage_keys) * a.v.row;
    commit_copies();
  };
  fill<M, D>(q_tile, a.q.at<const T>(batch, head) + int64_t(first_row) * a.q.row, a.q.row, rows, a.queries - first_row,
             a, thread, threads);
  load_keys(0);
  if (a.query_signs != ~0u) {
    wait_for_copies();
    __syncthreads();
    for (int i = thread; i < rows * row / 4; i += threads)
      store_shared(q_tile + 4 * i, a.query_signs == 0 ? 0 : load_shared(q_tile + 4 * i) ^ a.query_signs);
  }

  const uint32_t my_queries = q_tile + warp * 16 * MF * row + rows_first(lane, row);
  const uint32_t my_keys = halves_first(lane, row), my_values = v_tile + columns_at<M>(lane, row);
  const float factor = a.factor;

  float o[MF][D / 8][4], largest[MF][2], sum[MF][2];
  clear(o);
#pragma unroll
  for (int i = 0; i < MF; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[i][r] = -infinity, sum[i][r] = 0.0f;
  [[maybe_unused]] float mean[MF][2];
  if constexpr (L == Loop::weights_backward) row_means(mean, my_row, batch, head, lane, a);
  // f(row of the matrix, the lane's first column, columns that it sees, rows 16i + 8r), for those that exist
  auto for_each_row = [&](const Strided& matrix, int first, auto&& f) {
#pragma unroll
    for (int i = 0; i < MF; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int query = my_row + 16 * i + 8 * r + lane / 4;
        if (query < a.queries)
          f(matrix.at<float>(batch, head) + int64_t(query) * matrix.row, first + lane % 4 * 2,
            min(a.keys, query + a.offset + 1), i, r);
      }
  };

  for (int stage = 0; stage < block_sees; stage += stage_keys) {
    wait_for_copies();
    __syncthreads();  // the keys are here, and nobody uses the values before
    const uint32_t keys = next_keys + my_keys;
    load_values(stage);
    if (a.buffers == 2) {
      next_keys ^= other_keys;
      load_keys(stage + stage_keys);
    }
    const int end = min(block_sees, stage + stage_keys);
    int first = stage + half * Tiling::keys;
    do {
      float s[MF][N][4];
      [[maybe_unused]] float p[MF][N][4];
      auto read_p = [&] {
        clear(p);
        for_each_row(a.p, first, [&](const float* from, int c, int sees, int i, int r) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            float2 two = read_pair(from, c + 8 * j, sees, a.p_pairs);
            p[i][j][2 * r] = two.x, p[i][j][2 * r + 1] = two.y;
          }
        });
      };
      // Early, where registers allow it.
      if constexpr (L == Loop::weights_backward && D <= 64) read_p();
      product_of_rows<M, D>(s, LeftTile<M, D>{my_queries}, keys + (first - stage) * row);
      if constexpr (L == Loop::weights_backward && D > 64) read_p();
      if (first == stage + half * Tiling::keys) {
        if (a.buffers == 2) wait_for_copies<1>();
        else wait_for_copies();
        __syncthreads();  // the values are here
      }
      if constexpr (L == Loop::weights_backward) {
#pragma unroll
        for (int i = 0; i < MF; ++i)
#pragma unroll
          for (int j = 0; j < N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[i][j][e] = a.scale * p[i][j][e] * (s[i][j][e] - mean[i][e / 2]);
        for_each_row(a.ds, first, [&](float* to, int c, int, int i, int r) {
#pragma unroll
          for (int j = 0; j < N; ++j) write_pair(to, c + 8 * j, a.keys, a.p_pairs, s[i][j][2 * r], s[i][j][2 * r + 1]);
        });
      } else {
        if (first + Tiling::keys > all_see) {
#pragma unroll
          for (int i = 0; i < MF; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              int sees = min(a.keys, my_row + 16 * i + 8 * r + lane / 4 + a.offset + 1) - first - lane % 4 * 2;
#pragma unroll
              for (int j = 0; j < N; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                  if (8 * j + e >= sees) s[i][j][2 * r + e] = -infinity;
            }
        }
        if constexpr (L == Loop::weights)
          for_each_row(a.p, first, [&](float* to, int c, int, int i, int r) {
#pragma unroll
            for (int j = 0; j < N; ++j)
              write_pair(to, c + 8 * j, a.keys, a.p_pairs, s[i][j][2 * r], s[i][j][2 * r + 1]);
          });
#pragma unroll
        for (int i = 0; i < MF; ++i)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float m = largest[i][r];
#pragma unroll
            for (int j = 0; j < N; ++j) m = fmaxf(m, fmaxf(s[i][j][2 * r], s[i][j][2 * r + 1]));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
            // A row that has seen nothing yet: −inf − −inf would be NaN.
            float base = m == -infinity ? 0.0f : m * factor;
            float decay = shrink(largest[i][r], base, factor);
            largest[i][r] = m;
            float total = 0.0f;
#pragma unroll
            for (int j = 0; j < N; ++j)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                float& p = s[i][j][2 * r + e];
                p = fast_exp2(p * factor - base);
                total += p;
              }
            sum[i][r] = sum[i][r] * decay + total;
#pragma unroll
            for (int j = 0; j < D / 8; ++j) o[i][j][2 * r] *= decay, o[i][j][2 * r + 1] *= decay;
          }
      }
      // Always so, but the compiler does not know: with no branch here it starts on the values amid the
      // exponentials, and registers run out.
      if (D <= 96 || a.stage > 0) product_of_columns<M, D, Tiling::group>(o, s, my_values + (first - stage) * row);
      first += Tiling::keys;
    } while (!Tiling::wide && a.halves == 1 && first < end);
    if (a.buffers == 1) {
      if (!Tiling::wide) __syncthreads();  // nobody uses these keys any more
      load_keys(stage + stage_keys);
    }
  }

  if constexpr (!Tiling::wide) {
    if (a.halves == 2) {
      // Thread by thread: the partner holds the same rows and columns.
      constexpr int values = D / 2 + 4;
      const int partners = threads / 2;
      float* space = reinterpret_cast<float*>(shared) + thread % partners;
      wait_for_copies();  // of the queries, where no key was seen and nobody waited for them
      __syncthreads();
      if (half == 1) {
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) space[(4 * j + e) * partners] = o[0][j][e];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          space[(values - 4 + r) * partners] = largest[0][r], space[(values - 2 + r) * partners] = sum[0][r];
      }
      __syncthreads();
      if (L == Loop::attention && half == 1) return;
      float mine[2], theirs[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float other = space[(values - 4 + r) * partners], m = fmaxf(largest[0][r], other);
        const float base = m == -infinity ? 0.0f : m * factor;
        mine[r] = shrink(largest[0][r], base, factor), theirs[r] = shrink(other, base, factor);
        if (L == Loop::weights_backward) mine[r] = theirs[r] = 1.0f;
        largest[0][r] = m, sum[0][r] = sum[0][r] * mine[r] + space[(values - 2 + r) * partners] * theirs[r];
      }
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          o[0][j][e] = o[0][j][e] * mine[e / 2] + space[(4 * j + e) * partners] * theirs[e / 2];
    }
  }

  [[maybe_unused]] float* bases = reinterpret_cast<float*>(shared);  // weights: what the exponents of each row are less
  if constexpr (L == Loop::weights) __syncthreads();                 // nobody reads what is there any more
  T* out = a.o.at<T>(batch, head);
#pragma unroll
  for (int i = 0; i < MF; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[i][r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int query = my_row + 16 * i + 8 * r + lane / 4;
      if (query >= a.queries || half == 1) continue;
      if (L == Loop::weights && lane % 4 == 0)  // a row that sees nothing: every p is 0
        bases[query - first_row] = total == 0.0f ? infinity : largest[i][r] * factor + log2f(total);
      float inverse = total > 0.0f ? 1.0f / total : 0.0f;
      if (total != total) inverse = total;  // NaN in, NaN out
      if (L == Loop::weights_backward) inverse = 1.0f;
      if (L == Loop::attention && lane % 4 == 0)
        a.logsumexp[batch * a.l_batch + head * a.l_head + query * a.l_row] =
            total == 0.0f ? -infinity : largest[i][r] * factor * ln_2 + logf(total);
      T* to = out + int64_t(query) * a.o.row;
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
        store_result(to, 8 * j + lane % 4 * 2, o[i][j][2 * r] * inverse, o[i][j][2 * r + 1] * inverse, a);
    }

  if constexpr (L != Loop::attention) {
    if (L == Loop::weights_backward && a.ds.data == a.p.data) return;  // zeros are there
    const Strided& matrix = L == Loop::weights ? a.p : a.ds;
    __syncthreads();
    const int piece = a.halves == 2 ? stage_keys : Tiling::keys;  // the loop has written whole ones
    const int begin = L == Loop::weights ? 0 : (block_sees + piece - 1) / piece * piece;
    for (int i = thread / 32; i < min(rows, a.queries - first_row); i += threads / 32) {
      const int sees = L == Loop::weights ? min(a.keys, first_row + i + a.offset + 1) : 0;
      rewrite_row(matrix.at<float>(batch, head) + int64_t(first_row + i) * matrix.row, begin, sees,
                  columns_of(first_row, a), a.p_vectors, lane,
                  [factor, base = bases[i]](float x) { return fast_exp2(x * factor - base); });
    }
  }
}

template <Loop L, Math M, int D> void run_forward(const KernelCall& call, Arguments a) {
  constexpr const char* name = "attention (portable)";
  using Wide = ForwardTiling<M, D, true>;
  using Narrow = ForwardTiling<M, D, false>;
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  const int64_t limit = shared_memory_limit(name);
  constexpr int wide_rows = Wide::warps * 16 * Wide::fragments;

  // The maximum is taken before scaling, which needs a positive scale: another one's sign goes to the queries.
  if (attrs.scale == 0) a.query_signs = 0, a.factor = 1;
  else if (attrs.scale < 0) a.query_signs = is_fp32<M> ? 0x80000000u : 0x80008000u, a.factor = -a.factor;

  bool wide = false;
  int warps = 4;
  auto bytes = [&](int buffers) {
    return wide ? forward_bytes<Wide>(warps, a.stage, buffers) : forward_bytes<Narrow>(warps, a.stage, buffers);
  };
  if (attrs.tile == 0) {
    wide = ceil_div(a.queries, wide_rows) * a.heads * a.batches >= 2 * multiprocessors();
    a.stage = wide ? Wide::keys : 64;
    if (bytes(1) > limit) wide = false, a.stage = 32;
    const int64_t all_rows = int64_t(a.queries) * a.heads * a.batches;
    // With one block for each multiprocessor the longest would decide: two short ones, one heavy and
    // one light, are at work together.
    if (!wide && attrs.causal && ceil_div(all_rows, warps * 16) <= multiprocessors()) warps = 2;
    if (!wide && a.stage == 2 * Narrow::keys && ceil_div(all_rows, warps * 16) <= 2 * multiprocessors()) a.halves = 2;
  } else {
    warps = attrs.tile / 16;
    a.stage = attrs.tile;
  }
  if (bytes(1) > limit) refuse_tile(name, attrs.tile, bytes(1), limit);
  // A second buffer pays where it does not cost the second block of a multiprocessor, which has 1 KiB more than a block
  // may use, and spends 1 KiB on each; or where there is no second block.
  const int64_t blocks = ceil_div(a.queries, wide ? wide_rows : warps * 16);
  const bool alone = blocks * a.heads * a.batches <= multiprocessors() && bytes(2) <= limit;
  a.buffers = alone || 2 * (bytes(2) + 1024) <= limit + 1024 ? 2 : 1;

  a.order = order_of(blocks, a.heads * a.batches, attrs.causal, true);
  launch_large(name, wide ? forward<Wide, L> : forward<Narrow, L>, blocks * a.heads * a.batches, warps * 32 * a.halves,
               bytes(a.buffers), stream_of(call), a);
}

}  // namespace

Arguments arguments_of(const char* kernel, const KernelCall& call) {
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  if (call.accumulate) refuse(kernel, "cannot accumulate");
  need_floats(kernel, {&q, &k, &v});
  if (k.dtype != q.dtype || v.dtype != q.dtype) refuse(kernel, "q, k and v must have one element type");
  if (q.dims[3] < 1 || q.dims[3] > 128)
    refuse(kernel, "head dimension " + std::to_string(q.dims[3]) + " is not supported; it must be from 1 to 128");
  if (attrs.tile != 0 && attrs.tile != 32 && attrs.tile != 64 && attrs.tile != 128)
    refuse(kernel, "tile " + std::to_string(attrs.tile) + " is not supported; use 32, 64 or 128");
  constexpr int64_t most = int64_t(1) << 30;  // row numbers and their sums are ints
  if (q.dims[2] > most || k.dims[2] > most || q.dims[0] * q.dims[1] > most) refuse(kernel, "too many rows or heads");

  Arguments a;
  a.q = strided(kernel, q), a.k = strided(kernel, k), a.v = strided(kernel, v);
  a.batches = int(q.dims[0]), a.heads = int(q.dims[1]), a.kv_heads = int(k.dims[1]);
  a.queries = int(q.dims[2]), a.keys = int(k.dims[2]), a.dim = int(q.dims[3]);
  int64_t offset = attrs.causal ? attrs.causal_offset : a.keys;
  a.offset = int(std::min<int64_t>(std::max<int64_t>(offset, -int64_t(a.queries)), a.keys));
  a.scale = float(attrs.scale);
  a.factor = float(attrs.scale * 1.4426950408889634);
  a.vectors = whole_chunks(q) && whole_chunks(k) && whole_chunks(v);
  return a;
}

Order order_of(int64_t blocks, int heads, bool causal, bool descending) {
  Order order;
  order.blocks = int(blocks), order.heads = heads, order.multiprocessors = multiprocessors();
  order.descending = causal && descending;
  order.balanced = causal && descending && blocks * heads <= 2 * order.multiprocessors;
  return order;
}

void refuse_tile(const char* kernel, int tile, int64_t bytes, int64_t limit) {
  refuse(kernel, (tile ? "tile " + std::to_string(tile) : std::string("its smallest tile")) + " needs " +
                     std::to_string(bytes) + " bytes of shared memory per block, where the device has " +
                     std::to_string(limit));
}

}  // namespace portable

void portable_attention(const KernelCall& call) {
  constexpr const char* name = "attention (portable)";
  const TensorRef &q = call.in[0], &o = call.out[0], &l = call.out[1];
  portable::Arguments a = portable::arguments_of(name, call);
  if (o.dtype != q.dtype || l.dtype != DType::f32) refuse(name, "o must have q's element type, L fp32");
  a.o = portable::strided(name, o);
  a.logsumexp = l.as<float>();
  a.l_batch = l.strides[0], a.l_head = l.strides[1], a.l_row = l.strides[2];
  a.paired = portable::whole_pairs(o);
  if (numel(q) == 0) return;
  auto run = [&](auto m, auto d) { portable::run_forward<portable::Loop::attention, m(), d()>(call, a); };
  using portable::Math;
  if (q.dtype == DType::bf16) portable::with_tile_dim<Math::bf16>(a.dim, run);
  else if (q.dtype == DType::f16) portable::with_tile_dim<Math::f16>(a.dim, run);
  else if (call.math == MathMode::tf32) portable::with_tile_dim<Math::tf32>(a.dim, run);
  else portable::with_tile_dim<Math::tf32x3>(a.dim, run);
}

namespace portable {
namespace {

// left, x, y, matrix: the operands of the loop, and p, which it writes (or, backward, reads).
template <Loop L>
void run_weights(const char* name, const KernelCall& call, const TensorRef& x, const TensorRef& y, const TensorRef& p) {
  const TensorRef &left = call.in[0], &written = call.out[0], &result = call.out[1];
  const auto& attrs = call.attrs.as<AttentionWeightsAttrs>();
  KernelCall operands = call;
  const TensorRef in[] = {left, x, y};
  operands.in = in;
  AttentionAttrs mask;
  mask.scale = attrs.scale, mask.causal = attrs.causal, mask.causal_offset = attrs.causal_offset;
  operands.attrs = Attrs::of(mask);
  Arguments a = arguments_of(name, operands);
  if (left.dtype != DType::f32) refuse(name, "16-bit operands need a Hopper GPU and rows at multiples of 16 bytes");
  if (attrs.scale <= 0) refuse(name, "the scale must be positive");
  for (const TensorRef* t : {&p, &written, &result})
    if (t->dtype != DType::f32) refuse(name, "operands and results must have one element type");
  if (numel(left) == 0) return;
  a.p = strided(name, p), a.ds = strided(name, written), a.o = strided(name, result);
  if (L == Loop::weights_backward) a.stored_o = strided(name, call.in[2]);
  a.strip = int(attrs.strip);
  a.paired = whole_pairs(result);
  auto rows_in = [&](bool (*pieces)(const TensorRef&)) {  // only where rows begin counts
    TensorRef rows[2] = {p, written};
    rows[0].dims[3] = rows[1].dims[3] = 4;
    return pieces(rows[0]) && pieces(rows[1]);
  };
  a.p_pairs = rows_in(whole_pairs), a.p_vectors = rows_in(whole_chunks);
  auto run = [&](auto m, auto d) { run_forward<L, m(), d()>(operands, a); };
  if (call.math == MathMode::tf32) with_tile_dim<Math::tf32>(a.dim, run);
  else with_tile_dim<Math::tf32x3>(a.dim, run);
}

}  // namespace
}  // namespace portable

void portable_attention_weights(const KernelCall& call) {
  portable::run_weights<portable::Loop::weights>("attention_weights", call, call.in[1], call.in[2], call.out[0]);
}
void portable_attention_weights_backward(const KernelCall& call) {
  portable::run_weights<portable::Loop::weights_backward>("attention_weights_backward", call, call.in[1], call.in[4],
                                                          call.in[3]);
}

}  // namespace sinter::cuda
