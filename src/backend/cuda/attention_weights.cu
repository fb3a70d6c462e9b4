// Attention that stores its probabilities: p = softmax(scale · q·kᵀ) and o = p·v without storing the scores, and ds = scale · p∘(do·vᵀ −
// rowsum(do∘o)) without storing dp. What naive attention becomes in a compiled step; for any GPU since sm_80.
// Speed of light: one write of p (backward: a read and a write), where softmax and products as kernels of their own write and read it five times.
//
// A block owns some rows; its warps are groups of 16 rows times groups of keys of the stage in shared memory. Forward goes over the keys twice,
// first for each row's maximum and sum: multiplying again costs less than bringing scores from memory. fp32 also multiplies by the values, on
// tensor cores, which cuBLASLt's fp32 products do not use.
#include "backend/cuda/attention_portable.cuh"

namespace sinter::cuda {

namespace portable {

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int piece = 32, fragments = piece / 8;  // columns of p that a quad of lanes reads and writes together
// Keys of a warp at a time: many, so that what a turn costs besides is little, but two blocks must fit a multiprocessor.
template <Math M, int D> constexpr int warp_keys = !is_fp32<M> && D <= 64 ? 64 : 32;

struct WeightsArguments : Arguments {  // q: the rows' operand (q or do), k: the columns' (k or v)
  Strided p, ds;
  int strip =
      0;  // rows of which p and ds are written as far as the last of them sees (in multiples of 64 keys); 0: to the end
  bool p_vectors = false;  // rows of p and ds can be read and written in 16-byte pieces
};

template <Math M, int D> int64_t weights_bytes(int row_groups, int buffers) {
  int rows = 16 * row_groups, stage = warps / row_groups * warp_keys<M, D>;
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
    if (vectors && columns >= piece) {
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
  if (vectors && columns >= piece) {
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
  static constexpr int warp_keys = portable::warp_keys<M, D>, pieces = warp_keys / piece;
  static constexpr int rows = 16 * RowGroups, key_groups = warps / RowGroups, stage = key_groups * warp_keys;
  static constexpr int row = row_bytes<M, D>;
  const WeightsArguments& a;
  int lane, row_group, key_group, batch, head, first_row, my_row, stages;
  int warp_sees, all_see;  // keys that some row of the warp sees, and that all do
  const T *keys, *values;
  uint32_t left, right;
  float* statistics;  // 2 · 16 · warps + rows

  __device__ WeightsBlock(const WeightsArguments& args, unsigned char* shared) : a(args) {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32, row_group = warp % RowGroups, key_group = warp / RowGroups;
    int block, index;
    a.order.place(blockIdx.x, block, index);
    batch = index / a.heads, head = index % a.heads;
    keys = a.k.at<const T>(batch, head / (a.heads / a.kv_heads));
    values = a.v.at<const T>(batch, head / (a.heads / a.kv_heads));
    first_row = block * rows, my_row = first_row + row_group * 16 + lane / 4;
    const int last = min(first_row + rows, a.queries);
    stages = (min(a.keys, max(0, last + a.offset)) + stage - 1) / stage;
    const int first_of_warp = first_row + row_group * 16;
    all_see = min(a.keys, first_of_warp + a.offset + 1);
    warp_sees = first_of_warp < a.queries ? min(a.keys, min(first_of_warp + 16, a.queries) + a.offset) : 0;
    left = shared_address(shared), right = left + rows * row;
    statistics = reinterpret_cast<float*>(shared + (rows + a.buffers * stage) * row);
    fill<M, D>(left, a.q.at<const T>(batch, head) + int64_t(first_row) * a.q.row, a.q.row, rows, a.queries - first_row,
               a, threadIdx.x, threads);
    start();
  }

  // The first stage of keys.
  __device__ __forceinline__ void start() {
    if (stages > 0) load_keys(0, 0);
    commit_copies();
  }

  // Rows of the keys or the values into a buffer.
  __device__ __forceinline__ void load(uint32_t buffer, const T* from, int stride, int first) {
    fill<M, D>(right + buffer, from + int64_t(first) * stride, stride, stage, a.keys - first, a, threadIdx.x, threads);
  }
  __device__ __forceinline__ void load_keys(uint32_t buffer, int first) { load(buffer, keys, a.k.row, first); }
  __device__ __forceinline__ void multiply_keys(float (&s)[1][warp_keys / 8][4], uint32_t buffer) const {
    product_of_rows<M, D>(s, LeftTile<M, D>{left + row_group * 16 * row + rows_first(lane, row)},
                          right + buffer + key_group * warp_keys * row + halves_first(lane, row));
  }
  // After start(): before(this warp's first key) while the keys are on their way, then f(first key, the products of its rows and keys), for all
  // stages. Where its rows see none of them the products are not computed.
  template <class Before, class F> __device__ __forceinline__ void for_each_stage(Before&& before, F&& f) {
    constexpr uint32_t bytes = stage * row;
    const bool two = a.buffers == 2;
    uint32_t buffer = 0;
    for (int first = 0; first < stages * stage; first += stage) {
      const uint32_t next = two ? bytes - buffer : 0;
      const bool more = first + stage < stages * stage;
      if (two) {
        if (more) load_keys(next, first + stage);
        commit_copies();
      }
      const int mine = first + key_group * warp_keys;
      before(mine);
      if (two) wait_for_copies<1>();
      else wait_for_copies();
      __syncthreads();
      float s[1][warp_keys / 8][4];
      if (mine < warp_sees) multiply_keys(s, buffer);
      else clear(s);
      __syncthreads();  // nobody needs this stage any more
      if (!two) {
        if (more) load_keys(next, first + stage);
        commit_copies();
      }
      f(mine, s[0]);
      buffer = next;
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
  // `value` where a row sees nothing.
  __device__ __forceinline__ void hide(float (&x)[warp_keys / 8][4], int first, float value) const {
    if (first + warp_keys <= all_see) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int sees = visible(r, first) - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < warp_keys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * j + e >= sees) x[j][2 * r + e] = value;
    }
  }
  // The lane's elements, zeros where a row sees nothing.
  __device__ __forceinline__ void write(const Strided& m, int first, float (&x)[warp_keys / 8][4]) const {
    hide(x, first, 0.0f);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      T* to = row_of(m, r) + first;
#pragma unroll
      for (int part = 0; part < pieces; ++part) {
        float v[fragments][2];
#pragma unroll
        for (int j = 0; j < fragments; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) v[j][e] = x[part * fragments + j][2 * r + e];
        write_piece<M>(to + part * piece, v, a.keys - first - part * piece, a.p_vectors, exists(r), lane);
      }
    }
  }

  // Zeros where no row of the block sees anything.
  __device__ __forceinline__ void clear_rest(const Strided& m) const {
    constexpr int V = 16 / int(sizeof(T));
    const int last = a.strip ? min(a.queries, (first_row / a.strip + 1) * a.strip) : 0;
    const int end = a.strip ? min(a.keys, (max(1, last + a.offset) + 63) / 64 * 64) : a.keys;
    const int from = stages * stage, n = end - from, here = min(rows, a.queries - first_row);
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

// A row's maximum and the inverse of its sum of exponentials, from the parts that a quad's lanes and the groups of keys have. By the whole block.
template <class Block> struct RowStatistics {
  float largest[2] = {-infinity, -infinity}, sum[2] = {0.0f, 0.0f};  // of the lane
  float base[2], inverse[2];                                         // of the row

  template <int N> __device__ __forceinline__ void add(const float (&s)[N][4], float factor) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = largest[r];
#pragma unroll
      for (int j = 0; j < N; ++j) m = fmaxf(m, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      const float from = m == -infinity ? 0.0f : m * factor;  // −inf − −inf would be NaN
      sum[r] *= fast_exp2(largest[r] * factor - from);
      largest[r] = m;
#pragma unroll
      for (int j = 0; j < N; ++j)
        sum[r] += fast_exp2(s[j][2 * r] * factor - from) + fast_exp2(s[j][2 * r + 1] * factor - from);
    }
  }
  __device__ __forceinline__ void combine(const Block& b) {
    const float factor = b.a.factor;
    float2* parts = reinterpret_cast<float2*>(b.statistics);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      float total = sum[r] * fast_exp2((largest[r] - (top == -infinity ? 0.0f : top)) * factor);
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if (b.lane % 4 == 0)
        parts[b.key_group * Block::rows + b.row_group * 16 + 8 * r + b.lane / 4] = make_float2(top, total);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2* mine = parts + b.row_group * 16 + 8 * r + b.lane / 4;
      float top = -infinity, total = 0.0f;
#pragma unroll
      for (int g = 0; g < Block::key_groups; ++g) top = fmaxf(top, mine[g * Block::rows].x);
      base[r] = top == -infinity ? 0.0f : top * factor;
#pragma unroll
      for (int g = 0; g < Block::key_groups; ++g)
        total += mine[g * Block::rows].y * fast_exp2(mine[g * Block::rows].x * factor - base[r]);
      inverse[r] = total == 0.0f ? 0.0f : 1.0f / total;
    }
  }
  template <int N> __device__ __forceinline__ void normalise(float (&s)[N][4], float factor) const {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = fast_exp2(s[j][e] * factor - base[e / 2]) * inverse[e / 2];
  }
};

template <Math M, int D, int RowGroups>
__global__ void __launch_bounds__(threads, 2) weights(const __grid_constant__ WeightsArguments a) {
  using Block = WeightsBlock<M, D, RowGroups>;
  constexpr int N = Block::warp_keys / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  Block b(a, shared);
  auto nothing = [](int) {};
  RowStatistics<Block> of;
  b.for_each_stage(nothing, [&](int first, float(&s)[N][4]) {
    if (first >= b.warp_sees) return;
    b.hide(s, first, -infinity);
    of.add(s, a.factor);
  });
  wait_for_copies();  // of the rows, where no key was seen and nobody waited for them
  of.combine(b);
  if constexpr (!is_fp32<M>) {
    b.start();
    b.for_each_stage(nothing, [&](int first, float(&s)[N][4]) {
      of.normalise(s, a.factor);
      b.write(a.p, first, s);
    });
    b.clear_rest(a.p);
    return;
  }

  constexpr int row = row_bytes<M, D>;
  const uint32_t values = a.buffers == 2 ? Block::stage * row : 0;  // beside the keys, or after them
  float o[1][D / 8][4];
  clear(o);
  for (int first = 0; first < b.stages * Block::stage; first += Block::stage) {
    const int mine = first + b.key_group * Block::warp_keys;
    b.load_keys(0, first);
    if (values) b.load(values, b.values, a.v.row, first);
    commit_copies();
    wait_for_copies();
    __syncthreads();
    float s[1][N][4];
    if (mine < b.warp_sees) b.multiply_keys(s, 0);
    else clear(s);
    if (!values) {
      __syncthreads();
      b.load(0, b.values, a.v.row, first);
      commit_copies();
    }
    of.normalise(s[0], a.factor);
    b.write(a.p, mine, s[0]);
    if (!values) {
      wait_for_copies();
      __syncthreads();
    }
    if (mine < b.warp_sees)
      product_of_columns<M, D, D <= 32 ? D / 8 : 4>(
          o, s, b.right + values + b.key_group * Block::warp_keys * row + columns_at<M>(b.lane, row));
    __syncthreads();  // nobody needs this stage any more
  }
  b.clear_rest(a.p);

  // Groups of keys have parts of the same rows.
  float* space = reinterpret_cast<float*>(shared) + b.row_group * 32 * (D / 2) + b.lane;
  for (int group = 1; group < Block::key_groups; ++group) {
    if (b.key_group == group) {
#pragma unroll
      for (int j = 0; j < D / 2; ++j) space[32 * j] = o[0][j / 4][j % 4];
    }
    __syncthreads();
    if (b.key_group == 0) {
#pragma unroll
      for (int j = 0; j < D / 2; ++j) o[0][j / 4][j % 4] += space[32 * j];
    }
    __syncthreads();
  }
  if (b.key_group > 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!b.exists(r)) continue;
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
      store_result(b.row_of(a.o, r), 8 * j + b.lane % 4 * 2, o[0][j][2 * r], o[0][j][2 * r + 1], a);
  }
}

template <Math M, int D, int RowGroups>
__global__ void __launch_bounds__(threads, 2) weights_backward(const __grid_constant__ WeightsArguments a) {
  using Block = WeightsBlock<M, D, RowGroups>;
  using T = Element<M>;
  constexpr int N = Block::warp_keys / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  Block b(a, shared);

  // p of the next stage is on its way while this one is computed.
  RowPiece<M> now[2][Block::pieces], next[2][Block::pieces];
  auto read = [&](RowPiece<M>(&to)[2][Block::pieces], int first) {
    if (first >= b.warp_sees) return;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int part = 0; part < Block::pieces; ++part)
        to[r][part].read(b.row_of(a.p, r) + first + part * piece, a.keys - first - part * piece, a.p_vectors,
                         b.exists(r), b.lane);
  };
  read(next, b.key_group * Block::warp_keys);

  // rowsum(do∘o), by some neighbouring threads for each row.
  constexpr int per_row = threads / Block::rows;
  {
    const int row = threadIdx.x / per_row, query = b.first_row + row;
    float sum = 0.0f;
    if (query < a.queries) {
      const T* grad = a.q.at<const T>(b.batch, b.head) + int64_t(query) * a.q.row;
      const T* o = a.o.at<const T>(b.batch, b.head) + int64_t(query) * a.o.row;
#pragma unroll
      for (int i = 0; i < D; i += per_row) {
        const int d = i + threadIdx.x % per_row;
        if (d < a.dim) sum += to_float(grad[d]) * to_float(o[d]);
      }
    }
#pragma unroll
    for (int step = 1; step < per_row; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % per_row == 0) b.statistics[row] = sum;
  }
  __syncthreads();
  float mean[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) mean[r] = b.statistics[b.row_group * 16 + 8 * r + b.lane / 4];

  b.for_each_stage(
      [&](int first) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int part = 0; part < Block::pieces; ++part) now[r][part] = next[r][part];
        read(next, first + Block::stage);
      },
      [&](int first, float(&dp)[N][4]) {
        if (first < b.warp_sees) {
#pragma unroll
          for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int part = 0; part < Block::pieces; ++part) {
              float p[fragments][2];
              now[r][part].to_fragments(p, b.lane);
#pragma unroll
              for (int j = 0; j < fragments; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                  float& x = dp[part * fragments + j][2 * r + e];
                  x = a.scale * p[j][e] * (x - mean[r]);
                }
            }
        }
        b.write(a.ds, first, dp);
      });
  if (a.ds.data != a.p.data) b.clear_rest(a.ds);
}

template <Math M, int D, int RowGroups>
void launch_weights(const char* name, const KernelCall& call, WeightsArguments a) {
  const int64_t limit = shared_memory_limit(name), blocks = ceil_div(a.queries, 16 * RowGroups);
  a.buffers = weights_bytes<M, D>(RowGroups, 2) <= limit ? 2 : 1;
  const int64_t bytes = weights_bytes<M, D>(RowGroups, a.buffers);
  if (bytes > limit) refuse_tile(name, 0, bytes, limit);
  a.order = order_of(blocks, a.heads * a.batches, call.attrs.as<AttentionAttrs>().causal, true);
  launch_large(name, a.ds.data ? weights_backward<M, D, RowGroups> : weights<M, D, RowGroups>,
               blocks * a.heads * a.batches, threads, bytes, stream_of(call), a);
}

// q, k -> p; q, k, v -> p, o; or do, v, o, p -> ds
void run_weights(const char* name, const KernelCall& call, const TensorRef& p, const TensorRef& o) {
  const bool backward = call.n_in == 4, with_values = call.n_in == 3;
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  const TensorRef &x = call.in[0], &ds = call.out[0];
  KernelCall operands = call;
  if (!with_values) operands.in[2] = call.in[1];
  AttentionAttrs untiled = attrs;
  untiled.tile = 0;  // here it is the strip
  operands.attrs = Attrs::of(untiled);
  WeightsArguments a{arguments_of(name, operands)};
  if (attrs.scale <= 0) refuse(name, "the scale must be positive");
  if (!backward && with_values != (x.dtype == DType::f32)) refuse(name, "values are for fp32, and only for fp32");
  for (const TensorRef* t : {&p, &o, &ds})
    if (t->dtype != x.dtype) refuse(name, "operands and results must have one element type");
  if (numel_of(x) == 0) return;
  a.p = strided(name, p), a.o = strided(name, o);
  a.paired = whole_pairs(o);
  a.strip = attrs.tile;
  auto in_pieces = [](const TensorRef& t) {
    TensorRef rows = t;  // only where rows begin counts
    rows.dims[3] = 16;
    return whole_chunks(rows);
  };
  a.p_vectors = in_pieces(p) && (!backward || in_pieces(ds));
  if (backward) a.ds = strided(name, ds);
  const bool few = ceil_div(a.queries, 64) * a.heads * a.batches < 2 * multiprocessors();
  auto run = [&](auto m, auto d) {
    if (few) launch_weights<m(), d(), 2>(name, call, a);
    else launch_weights<m(), d(), 4>(name, call, a);
  };
  if (x.dtype == DType::bf16) with_tile_dim<Math::bf16>(a.dim, run);
  else if (x.dtype == DType::f16) with_tile_dim<Math::f16>(a.dim, run);
  else if (call.math == MathMode::tf32) with_tile_dim<Math::tf32>(a.dim, run);
  else with_tile_dim<Math::tf32x3>(a.dim, run);
}

}  // namespace

}  // namespace portable

void attention_weights(const KernelCall& call) {
  portable::run_weights("attention_weights", call, call.out[0], call.n_out > 1 ? call.out[1] : call.in[0]);
}
void attention_weights_backward(const KernelCall& call) {
  portable::run_weights("attention_weights_backward", call, call.in[3], call.in[2]);
}

}  // namespace sinter::cuda
