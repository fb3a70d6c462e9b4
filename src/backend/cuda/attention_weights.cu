// Attention's probabilities, stored: p = softmax(scale · q·kᵀ) without storing the scores, and ds = scale · p∘(do·vᵀ − rowsum(do∘o)) without
// storing dp. What naive attention becomes in a compiled step; for any GPU since sm_80.
// Speed of light: one write of p (backward: a read and a write), against a write and two reads more where softmax has a kernel of its own.
//
// A block owns some rows; its eight warps are `row_groups` of 16 rows times groups of 32 keys of the stage in shared memory. Forward goes over
// the keys twice, first for each row's maximum and sum: multiplying again costs less than bringing scores from memory.
#include "backend/cuda/attention_portable.cuh"

namespace sinter::cuda {

namespace portable {

namespace {

constexpr int threads = 256, warps = threads / 32, warp_keys = 32, fragments = warp_keys / 8;

struct WeightsArguments : Arguments {  // q: the rows' operand (q or do), k: the columns' (k or v)
  Strided p, ds;
  bool p_vectors = false;  // rows of p and ds can be read and written in 16-byte pieces
};

template <Math M, int D> int64_t weights_bytes(int row_groups, int buffers) {
  int rows = 16 * row_groups, stage = warps / row_groups * warp_keys;
  return int64_t(rows + buffers * stage) * row_bytes<M, D> + int64_t(sizeof(float)) * (2 * 16 * warps + rows);
}

// A 4×4 matrix whose rows lie in four neighbouring lanes.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&x)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    uint32_t got = __shfl_xor_sync(~0u, odd ? x[i] : x[i + 1], 1);
    (odd ? x[i] : x[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t got = __shfl_xor_sync(~0u, high ? x[i] : x[i + 2], 2);
    (high ? x[i] : x[i + 2]) = got;
  }
}

// 32 columns of a row of p as a quad of lanes has them in its fragments: of fragment j columns 8j + 2t and 8j + 2t + 1. 16-bit elements go
// to and from memory in pieces of 16 bytes, for which lanes exchange what they hold: lane t has fragment t's eight columns.
template <Math M> struct RowPiece {
  using T = Element<M>;
  static constexpr int words = is_fp32<M> ? 2 * fragments : fragments;
  uint32_t x[words];

  // By all lanes of a warp; `there`: the row exists.
  __device__ __forceinline__ void read(const T* row, int columns, bool vectors, bool there, int lane) {
    const int t = lane % 4;
#pragma unroll
    for (int i = 0; i < words; ++i) x[i] = 0;
    if (vectors && columns >= warp_keys) {
      if (!there) return;
      if constexpr (is_fp32<M>) {
#pragma unroll
        for (int j = 0; j < fragments; ++j) {
          uint2 v = *reinterpret_cast<const uint2*>(row + 8 * j + 2 * t);
          x[2 * j] = v.x, x[2 * j + 1] = v.y;
        }
      } else {
        uint4 v = *reinterpret_cast<const uint4*>(row + 8 * t);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < fragments; ++j) {
      const int c = 8 * j + 2 * t;
      const float first = there && c < columns ? to_float(row[c]) : 0.0f;
      const float second = there && c + 1 < columns ? to_float(row[c + 1]) : 0.0f;
      if constexpr (is_fp32<M>) x[2 * j] = __float_as_uint(first), x[2 * j + 1] = __float_as_uint(second);
      else x[j] = pack<M>(first, second);
    }
    if constexpr (!is_fp32<M>) transpose_in_quad(x, lane);  // as if it had been read in one piece
  }
  // By all lanes of a warp.
  __device__ __forceinline__ void to_fragments(float (&v)[fragments][2], int lane) {
    if constexpr (is_fp32<M>) {
#pragma unroll
      for (int j = 0; j < fragments; ++j) v[j][0] = __uint_as_float(x[2 * j]), v[j][1] = __uint_as_float(x[2 * j + 1]);
    } else {
      transpose_in_quad(x, lane);
#pragma unroll
      for (int j = 0; j < fragments; ++j) {
        Pack<T, 2> two;
        *reinterpret_cast<uint32_t*>(&two) = x[j];
        unpack(two, v[j]);
      }
    }
  }
};

// By all lanes of a warp; `there`: the row exists.
template <Math M>
__device__ __forceinline__ void write_piece(Element<M>* row, const float (&v)[fragments][2], int columns, bool vectors,
                                            bool there, int lane) {
  const int t = lane % 4;
  if (vectors && columns >= warp_keys) {
    if constexpr (is_fp32<M>) {
#pragma unroll
      for (int j = 0; j < fragments; ++j)
        if (there) *reinterpret_cast<float2*>(row + 8 * j + 2 * t) = make_float2(v[j][0], v[j][1]);
    } else {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < fragments; ++j) x[j] = pack<M>(v[j][0], v[j][1]);
      transpose_in_quad(x, lane);
      if (there) *reinterpret_cast<uint4*>(row + 8 * t) = make_uint4(x[0], x[1], x[2], x[3]);
    }
    return;
  }
  if (!there) return;
#pragma unroll
  for (int j = 0; j < fragments; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (8 * j + 2 * t + e < columns) row[8 * j + 2 * t + e] = from_float<Element<M>>(v[j][e]);
}

// What both directions share: where a thread stands, the stages of keys, and the rest of the rows.
template <Math M, int D, int RowGroups> struct WeightsBlock {
  using T = Element<M>;
  static constexpr int rows = 16 * RowGroups, key_groups = warps / RowGroups, stage = key_groups * warp_keys;
  static constexpr int row = row_bytes<M, D>;
  const WeightsArguments& a;
  int lane, row_group, key_group, batch, head, first_row, my_row, sees, stages;
  const T* keys;
  uint32_t left, right;
  float* statistics;  // 2 · 16 · warps + rows

  __device__ WeightsBlock(const WeightsArguments& args, unsigned char* shared) : a(args) {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32, row_group = warp % RowGroups, key_group = warp / RowGroups;
    int block, index;
    a.order.place(blockIdx.x, block, index);
    batch = index / a.heads, head = index % a.heads;
    keys = a.k.at<const T>(batch, head / (a.heads / a.kv_heads));
    first_row = block * rows, my_row = first_row + row_group * 16 + lane / 4;
    sees = min(a.keys, max(0, min(first_row + rows, a.queries) + a.offset));  // any row of the block
    stages = (sees + stage - 1) / stage;
    left = shared_address(shared), right = left + rows * row;
    statistics = reinterpret_cast<float*>(shared + (rows + a.buffers * stage) * row);
    fill<M, D>(left, a.q.at<const T>(batch, head) + int64_t(first_row) * a.q.row, a.q.row, rows, a.queries - first_row,
               a, threadIdx.x, threads);
    commit_copies();
  }

  __device__ __forceinline__ void load(int turn, int first) {
    fill<M, D>(right + turn % a.buffers * stage * row, keys + int64_t(first) * a.k.row, a.k.row, stage, a.keys - first,
               a, threadIdx.x, threads);
  }
  // f(turn, this warp's first key, the products of its rows and keys) for all stages, `rounds` times over. before(first key) runs while the
  // keys are on their way.
  template <class Before, class F> __device__ __forceinline__ void for_each_stage(int rounds, Before&& before, F&& f) {
    const int turns = rounds * stages;
    if (turns > 0) load(0, 0);
    commit_copies();
    for (int turn = 0, first = 0; turn < turns; ++turn) {
      int next = first + stage < stages * stage ? first + stage : 0;
      if (a.buffers == 2) {
        if (turn + 1 < turns) load(turn + 1, next);
        commit_copies();
      }
      const int mine = first + key_group * warp_keys;
      before(turn, mine);
      if (a.buffers == 2) wait_for_copies<1>();
      else wait_for_copies();
      __syncthreads();
      float s[1][fragments][4];
      product_of_rows<M, D>(s, LeftTile<M, D>{left + row_group * 16 * row + rows_first(lane, row)},
                            right + (turn % a.buffers * stage + key_group * warp_keys) * row + halves_first(lane, row));
      __syncthreads();  // nobody needs this stage any more
      if (a.buffers == 1) {
        if (turn + 1 < turns) load(turn + 1, next);
        commit_copies();
      }
      f(turn, mine, s[0]);
      first = next;
    }
  }

  // Of row my_row + 8r, keys from `first` on that it sees.
  __device__ __forceinline__ int visible(int r, int first) const {
    return min(a.keys, my_row + 8 * r + a.offset + 1) - first;
  }
  __device__ __forceinline__ bool exists(int r) const { return my_row + 8 * r < a.queries; }
  __device__ __forceinline__ T* row_of(const Strided& m, int r) const {
    return m.at<T>(batch, head) + int64_t(my_row + 8 * r) * m.row;
  }

  // Zeros where no row of the block sees anything.
  __device__ __forceinline__ void clear_rest(const Strided& m) const {
    constexpr int V = 16 / int(sizeof(T));
    const int from = stages * stage, n = a.keys - from, here = min(rows, a.queries - first_row);
    if (n <= 0) return;
    T* first = m.at<T>(batch, head) + int64_t(first_row) * m.row + from;
    const int vectors = a.p_vectors ? n / V : 0;
    for (int r = threadIdx.x / 32; r < here; r += warps) {
      T* to = first + int64_t(r) * m.row;
      for (int c = lane; c < vectors; c += 32) reinterpret_cast<uint4*>(to)[c] = make_uint4(0, 0, 0, 0);
      for (int c = vectors * V + lane; c < n; c += 32) to[c] = from_float<T>(0.0f);
    }
  }
};

template <Math M, int D, int RowGroups>
__global__ void __launch_bounds__(threads, 2) weights(const __grid_constant__ WeightsArguments a) {
  using Block = WeightsBlock<M, D, RowGroups>;
  extern __shared__ __align__(16) unsigned char shared[];
  Block b(a, shared);
  const int t = b.lane % 4;
  float largest[2] = {-infinity, -infinity}, sum[2] = {0.0f, 0.0f}, base[2] = {}, inverse[2] = {};
  b.for_each_stage(
      2, [](int, int) {},
      [&](int turn, int first, float(&s)[fragments][4]) {
        const bool hidden = warp_keys > b.visible(0, first);  // some keys, from the first of the lane's rows
#pragma unroll
        for (int j = 0; j < fragments; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[j][e] *= a.factor;
            if (hidden && 8 * j + 2 * t + e % 2 >= b.visible(e / 2, first)) s[j][e] = -infinity;
          }
        if (turn < b.stages) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float m = largest[r];
#pragma unroll
            for (int j = 0; j < fragments; ++j) m = fmaxf(m, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
            const float from = m == -infinity ? 0.0f : m;  // −inf − −inf would be NaN
            sum[r] *= fast_exp2(largest[r] - from);
            largest[r] = m;
#pragma unroll
            for (int j = 0; j < fragments; ++j)
              sum[r] += fast_exp2(s[j][2 * r] - from) + fast_exp2(s[j][2 * r + 1] - from);
          }
          if (turn + 1 < b.stages) return;
          // The parts of a row: a quad's lanes, then the groups of keys.
          float2* parts = reinterpret_cast<float2*>(b.statistics);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            auto add = [&](float m, float n) {
              const float top = fmaxf(largest[r], m), from = top == -infinity ? 0.0f : top;
              sum[r] = sum[r] * fast_exp2(largest[r] - from) + n * fast_exp2(m - from);
              largest[r] = top;
            };
#pragma unroll
            for (int step = 1; step < 4; step *= 2)
              add(__shfl_xor_sync(~0u, largest[r], step), __shfl_xor_sync(~0u, sum[r], step));
            const int row = b.row_group * 16 + 8 * r + b.lane / 4;
            if (t == 0) parts[b.key_group * Block::rows + row] = make_float2(largest[r], sum[r]);
          }
          __syncthreads();
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int row = b.row_group * 16 + 8 * r + b.lane / 4;
            float top = -infinity, total = 0.0f;
#pragma unroll
            for (int g = 0; g < Block::key_groups; ++g) top = fmaxf(top, parts[g * Block::rows + row].x);
            base[r] = top == -infinity ? 0.0f : top;
#pragma unroll
            for (int g = 0; g < Block::key_groups; ++g) {
              const float2 part = parts[g * Block::rows + row];
              total += part.y * fast_exp2(part.x - base[r]);
            }
            inverse[r] = total == 0.0f ? 0.0f : 1.0f / total;
          }
        } else {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float p[fragments][2];
#pragma unroll
            for (int j = 0; j < fragments; ++j)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                p[j][e] = fast_exp2(s[j][2 * r + e] - base[r]) * inverse[r];
                if (hidden && 8 * j + 2 * t + e >= b.visible(r, first)) p[j][e] = 0.0f;
              }
            write_piece<M>(b.row_of(a.p, r) + first, p, a.keys - first, a.p_vectors, b.exists(r), b.lane);
          }
        }
      });
  b.clear_rest(a.p);
}

template <Math M, int D, int RowGroups>
__global__ void __launch_bounds__(threads, 2) weights_backward(const __grid_constant__ WeightsArguments a) {
  using Block = WeightsBlock<M, D, RowGroups>;
  using T = Element<M>;
  extern __shared__ __align__(16) unsigned char shared[];
  Block b(a, shared);

  // rowsum(do∘o), by some neighbouring threads for each row.
  constexpr int per_row = threads / Block::rows;
  {
    const int row = threadIdx.x / per_row, query = b.first_row + row;
    float sum = 0.0f;
    if (query < a.queries) {
      const T* grad = a.q.at<const T>(b.batch, b.head) + int64_t(query) * a.q.row;
      const T* o = a.o.at<const T>(b.batch, b.head) + int64_t(query) * a.o.row;
      for (int d = threadIdx.x % per_row; d < a.dim; d += per_row) sum += to_float(grad[d]) * to_float(o[d]);
    }
#pragma unroll
    for (int step = 1; step < per_row; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % per_row == 0) b.statistics[row] = sum;
  }
  __syncthreads();
  float mean[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) mean[r] = b.statistics[b.row_group * 16 + 8 * r + b.lane / 4];

  RowPiece<M> read[2];
  b.for_each_stage(
      1,
      [&](int, int first) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          read[r].read(b.row_of(a.p, r) + first, a.keys - first, a.p_vectors, b.exists(r), b.lane);
      },
      [&](int, int first, float(&dp)[fragments][4]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float p[fragments][2];
          read[r].to_fragments(p, b.lane);
#pragma unroll
          for (int j = 0; j < fragments; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              p[j][e] = 8 * j + 2 * (b.lane % 4) + e < b.visible(r, first)
                            ? a.scale * p[j][e] * (dp[j][2 * r + e] - mean[r])
                            : 0.0f;
          write_piece<M>(b.row_of(a.ds, r) + first, p, a.keys - first, a.p_vectors, b.exists(r), b.lane);
        }
      });
  if (a.ds.data != a.p.data) b.clear_rest(a.ds);
}

template <Math M, int D, int RowGroups>
void launch_weights(const char* name, const KernelCall& call, WeightsArguments a, bool causal) {
  const int64_t limit = shared_memory_limit(name), blocks = ceil_div(a.queries, 16 * RowGroups);
  a.buffers = weights_bytes<M, D>(RowGroups, 2) <= limit ? 2 : 1;
  const int64_t bytes = weights_bytes<M, D>(RowGroups, a.buffers);
  if (bytes > limit) refuse_tile(name, 0, bytes, limit);
  a.order = order_of(blocks, a.heads * a.batches, causal, true);
  launch_large(name, a.ds.data ? weights_backward<M, D, RowGroups> : weights<M, D, RowGroups>,
               blocks * a.heads * a.batches, threads, bytes, stream_of(call), a);
}

// x and y: the rows' and the columns' operand.
void run_weights(const char* name, const KernelCall& call, const TensorRef& p) {
  const TensorRef &x = call.in[0], &y = call.in[1];
  KernelCall operands = call;
  operands.in[2] = y;
  WeightsArguments a{arguments_of(name, operands)};
  if (numel_of(x) == 0 || a.keys == 0) return;
  a.p = strided(name, p);
  auto in_pieces = [](const TensorRef& t) {
    TensorRef rows = t;  // only where rows begin counts
    rows.dims[3] = 16;
    return whole_chunks(rows);
  };
  a.p_vectors = in_pieces(p);
  if (call.n_in > 2) {
    a.o = strided(name, call.in[2]), a.ds = strided(name, call.out[0]);
    a.p_vectors = a.p_vectors && in_pieces(call.out[0]);
  }
  for (const TensorRef* t : {&y, &p, &call.out[0]})
    if (t->dtype != x.dtype) refuse(name, "operands and results must have one element type");
  const bool causal = call.attrs.as<AttentionAttrs>().causal;
  const bool few = ceil_div(a.queries, 64) * a.heads * a.batches < 2 * multiprocessors();
  auto run = [&](auto m, auto d) {
    if (few) launch_weights<m(), d(), 2>(name, call, a, causal);
    else launch_weights<m(), d(), 4>(name, call, a, causal);
  };
  if (x.dtype == DType::bf16) with_tile_dim<Math::bf16>(a.dim, run);
  else if (x.dtype == DType::f16) with_tile_dim<Math::f16>(a.dim, run);
  else if (call.math == MathMode::tf32) with_tile_dim<Math::tf32>(a.dim, run);
  else with_tile_dim<Math::tf32x3>(a.dim, run);
}

}  // namespace

}  // namespace portable

void attention_weights(const KernelCall& call) { portable::run_weights("attention_weights", call, call.out[0]); }
void attention_weights_backward(const KernelCall& call) {
  portable::run_weights("attention_weights_backward", call, call.in[3]);
}

}  // namespace sinter::cuda
