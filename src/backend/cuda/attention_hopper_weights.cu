// Attention that stores its probabilities, on Hopper: p = softmax(scale·q·kᵀ) and o = p·v; backward
// ds = scale·p∘(do·vᵀ − rowsum(do∘o)) and dq = ds·k. Neither scores nor dp are stored. What naive attention becomes
// in a compiled step, in 16 bits.
// Speed of light: one write of p (backward a read of p and a write of ds), where calls of their own would write and
// read such matrices five times.
//
// Both directions are one loop over tiles of keys: left·xᵀ becomes a tile of p or ds, which leaves by TMA and is
// multiplied by y. One producer warp brings the tiles; two warpgroups own 64 rows each. Where there are too few rows
// to fill the GPU (Split), a block has only 64 of them: its warpgroups take every other tile, and combine their sums
// at the end. Forward first goes over the keys once more for each row's maximum and sum: multiplying again costs less
// than bringing scores from memory.
#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_hopper.h"

namespace sinter::cuda::hopper {
namespace {

constexpr int groups = 2;
constexpr int granule = 64;  // columns of the matrix that are written together
[[maybe_unused]] constexpr float infinity = INFINITY;

struct RowsOf {  // of a (B, H, N, D) tensor
  const void* data;
  int64_t batch, head, row;
};

struct WeightsArgs {
  int queries, keys, dim, heads, heads_per_kv;
  Schedule schedule;  // over blocks of queries and (batch, head)
  int offset;         // query i sees keys <= i + offset
  int strip;          // rows for which the matrix is written as far as the last of them sees; 0: to the end
  bool clears;        // the matrix has no zeros yet
  float scale;
  RowsOf grad_o, o;  // backward
};

template <int D, bool Split> struct Shape {
  static constexpr int rows = Split ? 64 : 64 * groups, keys = Split && D > 64 ? 64 : 128, stages = Split ? 4 : 2;
  using Operand = Tile<D>;
  using Matrix = Tile<keys>;  // 64 rows of p or ds

  struct Shared {
    alignas(1024) char left[Operand::bytes(rows)];
    alignas(1024) char x[stages][Operand::bytes(keys)];
    alignas(1024) char y[stages][Operand::bytes(keys)];
    alignas(1024) char matrix[groups][2][Matrix::bytes(64)];
    float2 statistics[groups][64];
    uint64_t left_full, x_full[stages], x_empty[stages], y_full[stages], y_empty[stages], matrix_full[groups][2],
        matrix_empty[groups][2];
  };
};

[[maybe_unused]] __device__ __forceinline__ int keys_seen(int row, const WeightsArgs& a) {
  return max(0, min(a.keys, row + a.offset + 1));
}

// Tile number i of a kind: its place, and the phase of that place's barriers.
template <int Stages> struct Turn {
  int stage, phase;
  __device__ __forceinline__ explicit Turn(int i) : stage(i % Stages), phase(i / Stages % 2) {}
};

// Of a thread's elements in the tile that begins with key `first`, those that its rows do not see become `value`.
template <int N>
__device__ __forceinline__ void hide(float (&s)[N], int row, int first, const WeightsArgs& a, float value) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int sees = keys_seen(row + Fragment::row() + 8 * r, a) - first - Fragment::column();
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i / 2 % 2 == r && i / 4 * 8 + i % 2 >= sees) s[i] = value;
  }
}

// rowsum(do∘o) of a thread's two rows.
template <class T>
__device__ __forceinline__ void row_means(float (&mean)[2], int row, int head, int batch, const WeightsArgs& a) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int query = row + Fragment::row() + 8 * r;
    float sum = 0;
    if (query < a.queries) {
      auto at = [&](const RowsOf& t) {
        return static_cast<const T*>(t.data) + batch * t.batch + head * t.head + query * t.row;
      };
      const T *grad = at(a.grad_o), *o = at(a.o);
      for (int d = threadIdx.x % 4 * 8; d < a.dim; d += 32) {
        float x[8], y[8];
        unpack(*reinterpret_cast<const Pack<T, 8>*>(grad + d), x);
        unpack(*reinterpret_cast<const Pack<T, 8>*>(o + d), y);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
      }
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    mean[r] = sum + __shfl_xor_sync(~0u, sum, 2);
  }
}

template <class T, int D, bool Split, bool Backward>
__global__ void __launch_bounds__(128 * (groups + 1), 1)
    attention_weights_kernel(const __grid_constant__ CUtensorMap map_left, const __grid_constant__ CUtensorMap map_x,
                             const __grid_constant__ CUtensorMap map_y, const __grid_constant__ CUtensorMap map_p,
                             const __grid_constant__ CUtensorMap map_written,
                             const __grid_constant__ CUtensorMap map_result, const __grid_constant__ WeightsArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using S = Shape<D, Split>;
  using Operand = typename S::Operand;
  using Matrix = typename S::Matrix;
  constexpr int rows = S::rows, keys = S::keys, stages = S::stages;
  constexpr int stride = Split ? groups : 1;  // from one tile of a group to its next
  extern __shared__ __align__(1024) char raw[];
  auto& sh = *reinterpret_cast<typename S::Shared*>(raw);
  if (threadIdx.x == 0) {
    init_barrier(&sh.left_full, 1);
    for (int i = 0; i < stages; ++i) {
      init_barrier(&sh.x_full[i], 1), init_barrier(&sh.x_empty[i], groups / stride);
      init_barrier(&sh.y_full[i], 1), init_barrier(&sh.y_empty[i], groups / stride);
    }
    for (int g = 0; g < groups; ++g)
      for (int i = 0; i < 2; ++i) init_barrier(&sh.matrix_full[g][i], 1), init_barrier(&sh.matrix_empty[g][i], 1);
    fence_barrier_init();
  }
  __syncthreads();

  const Position at = a.schedule.at(blockIdx.x, true);
  const int head = at.head % a.heads, batch = at.head / a.heads, block_row = at.block * rows;
  // Tile i begins with key (n − 1 − i)·keys. Forward, the tiles of x are 0 to n − 1 and once more n to 2n − 1.
  const int n = (keys_seen(min(block_row + rows, a.queries) - 1, a) + keys - 1) / keys;
  constexpr int passes = Backward ? 1 : 2;

  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x != 0) return;
    const int kv_head = head / a.heads_per_kv;
    arrive_expecting(&sh.left_full, Operand::bytes(rows));
    for (int p = 0; p < Operand::panels; ++p)
      for (int g = 0; g < rows / 64; ++g)
        load_box(sh.left + p * Operand::panel_bytes(rows) + g * Operand::panel_bytes(64), &map_left, &sh.left_full,
                 64 * p, block_row + 64 * g, head, batch);
    auto load = [&](char* to, const CUtensorMap* map, uint64_t* full, uint64_t* empty, int phase, int i) {
      wait(empty, phase ^ 1);
      arrive_expecting(full, Operand::bytes(keys));
#pragma unroll 1
      for (int p = 0; p < Operand::panels; ++p)
        load_box(to + p * Operand::panel_bytes(keys), map, full, 64 * p, (n - 1 - i) * keys, kv_head, batch);
    };
    auto load_x = [&](int i) {
      Turn<stages> t(i);
      load(sh.x[t.stage], &map_x, &sh.x_full[t.stage], &sh.x_empty[t.stage], t.phase, i % n);
    };
    auto load_y = [&](int i) {
      Turn<stages> t(i);
      load(sh.y[t.stage], &map_y, &sh.y_full[t.stage], &sh.y_empty[t.stage], t.phase, i);
    };
    auto load_matrix = [&](int i) {
      Turn<2> t(i / stride);
      for (int g = Split ? i % groups : 0; g < (Split ? i % groups + 1 : groups); ++g) {
        wait(&sh.matrix_empty[g][t.stage], t.phase ^ 1);
        arrive_expecting(&sh.matrix_full[g][t.stage], Matrix::bytes(64));
        for (int p = 0; p < Matrix::panels; ++p)
          load_box(sh.matrix[g][t.stage] + p * Matrix::panel_bytes(64), &map_p, &sh.matrix_full[g][t.stage],
                   (n - 1 - i) * keys + 64 * p, Split ? block_row : block_row + 64 * g, head, batch);
      }
    };
    for (int i = 0; i < (passes - 1) * n; ++i) load_x(i);
    // A tile of y is wanted when its group's next tile of x is at work.
    for (int i = 0; i < n + stride; ++i) {
      if (i < n) load_x((passes - 1) * n + i);
      if (Backward && i < n) load_matrix(i);
      if (i >= stride) load_y(i - stride);
    }
    return;
  }

  take_registers<232>();
  const int group = threadIdx.x / 128 - 1, row_group = Split ? 0 : group, row = block_row + 64 * row_group;
  const bool leader = threadIdx.x % 128 == 0;
  const float c = a.scale * log2_e;
  const uint64_t left = matrix<Operand::row_bytes>(sh.left + row_group * Operand::panel_bytes(64));
  const int first_tile = Split ? group : 0, all_see = keys_seen(row, a);
  auto first_key = [&](int i) { return (n - 1 - i) * keys; };
  auto is_masked = [&](int i) { return first_key(i) + keys > all_see; };
  float s[keys / 2];
  auto issue_scores = [&](int i) {
    Turn<stages> t(i);
    wait(&sh.x_full[t.stage], t.phase);
    uint64_t right = matrix<Operand::row_bytes>(sh.x[t.stage]);
    pin(s);
    fence_registers();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, keys>::template shared<false, false>(s, left + Operand::along(k, rows), right + Operand::along(k, keys),
                                                    k > 0);
    commit_products();
  };
  auto free_x = [&](int i) { arrive_if(leader, &sh.x_empty[Turn<stages>(i).stage]); };

  wait(&sh.left_full, 0);
  float base[2];  // forward: what the exponents of p are less, backward rowsum(do∘o)
  if constexpr (Backward) {
    row_means<T>(base, row, head, batch, a);
  } else {
    float top[2] = {-infinity, -infinity}, sum[2] = {0, 0};  // of what this thread has
    for (int i = first_tile; i < n; i += stride) {
      issue_scores(i);
      wait_products<0>();
      pin(s);
      free_x(i);
      if (is_masked(i)) hide(s, row, first_key(i), a, -infinity);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float larger = top[r];
#pragma unroll
        for (int e = 0; e < keys / 2; ++e)
          if (e / 2 % 2 == r) larger = fmaxf(larger, s[e]);
        float from = larger == -infinity ? 0.f : larger * c;  // −inf − −inf would be NaN
        sum[r] *= fast_exp2(__fmaf_rn(top[r], c, -from));
        top[r] = larger;
#pragma unroll
        for (int e = 0; e < keys / 2; ++e)
          if (e / 2 % 2 == r) sum[r] += fast_exp2(__fmaf_rn(s[e], c, -from));
      }
    }
    auto add = [&](float& most, float& total, float other_top, float other_total) {
      float larger = fmaxf(most, other_top), from = larger == -infinity ? 0.f : larger * c;
      total = total * fast_exp2(__fmaf_rn(most, c, -from)) + other_total * fast_exp2(__fmaf_rn(other_top, c, -from));
      most = larger;
    };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int lane = 1; lane < 4; lane *= 2)
        add(top[r], sum[r], __shfl_xor_sync(~0u, top[r], lane), __shfl_xor_sync(~0u, sum[r], lane));
      if (Split && threadIdx.x % 4 == 0) sh.statistics[group][Fragment::row() + 8 * r] = make_float2(top[r], sum[r]);
    }
    if constexpr (Split) {
      sync_threads(1 + groups, 128 * groups);
#pragma unroll
      for (int r = 0; r < 2; ++r) {  // in one order for both
        float2 first = sh.statistics[0][Fragment::row() + 8 * r], second = sh.statistics[1][Fragment::row() + 8 * r];
        add(first.x, first.y, second.x, second.y);
        top[r] = first.x, sum[r] = first.y;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)  // a row that sees nothing: every p is 0
      base[r] = sum[r] == 0.f ? infinity : __fmaf_rn(top[r], c, __log2f(sum[r]));
  }

  float o[D / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) o[i] = 0;
  uint32_t operand[keys / 4];
  // Where the k-th 16 × 16 block of a warp's rows lies in the matrix's tile i.
  auto block_of = [&](int i, int k) {
    int lane = threadIdx.x % 32, r = threadIdx.x / 32 % 4 * 16 + lane % 16;
    char* panel = sh.matrix[group][i / stride % 2] + k / 4 * Matrix::panel_bytes(64);
    return shared_address(panel) + swizzled<Matrix::row_bytes>(r, k % 4 * 32 + lane / 16 * 16);
  };
  auto to_weights = [&](int i) {
    if constexpr (Backward) {
      Turn<2> t(i / stride);
      wait(&sh.matrix_full[group][t.stage], t.phase);
#pragma unroll
      for (int k = 0; k < keys / 16; ++k) {
        uint32_t p[4];
        load_blocks(block_of(i, k), p);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float2 two = unpack_pair<T>(p[e]);
          float &d0 = s[8 * k + 2 * e], &d1 = s[8 * k + 2 * e + 1];
          d0 = a.scale * two.x * (d0 - base[e % 2]), d1 = a.scale * two.y * (d1 - base[e % 2]);
        }
      }
      if (is_masked(i)) hide(s, row, first_key(i), a, 0);
    } else {
      if (is_masked(i)) hide(s, row, first_key(i), a, -infinity);
#pragma unroll
      for (int e = 0; e < keys / 2; ++e) s[e] = fast_exp2(__fmaf_rn(s[e], c, -base[e / 2 % 2]));
    }
  };
  auto write = [&](int i) {
    if constexpr (!Backward) {  // backward, this tile's p was here, and each warp has read its own
      if (leader) wait_stores_read<1>();
      sync_threads(1 + group, 128);
    }
#pragma unroll
    for (int k = 0; k < keys / 16; ++k)
      store_blocks(block_of(i, k), operand[4 * k], operand[4 * k + 1], operand[4 * k + 2], operand[4 * k + 3]);
    fence_shared();
    sync_threads(1 + group, 128);
    if (leader) {
      for (int p = 0; p < Matrix::panels; ++p)
        store_box(&map_written, sh.matrix[group][i / stride % 2] + p * Matrix::panel_bytes(64), first_key(i) + 64 * p,
                  row, head, batch);
      commit_stores();
    }
  };
  auto issue_values = [&](int i) {
    Turn<stages> t(i);
    wait(&sh.y_full[t.stage], t.phase);
    uint64_t right = matrix<Operand::row_bytes>(sh.y[t.stage], Operand::panel_bytes(keys));
    pin(o);
    fence_registers();
#pragma unroll
    for (int k = 0; k < keys / 16; ++k)
      Wgmma<T, D>::template registers<true>(o, operand + 4 * k, right + Operand::across(k), 1);
    commit_products();
  };
  auto free_y = [&](int i) { arrive_if(leader, &sh.y_empty[Turn<stages>(i).stage]); };

  if (first_tile < n) {
    const int again = (passes - 1) * n;  // tiles of x so far
    int i = first_tile;
    issue_scores(again + i);
    wait_products<0>();
    pin(s);
    free_x(again + i);
    to_weights(i);
    to_operand<T>(operand, s);
    write(i);
    for (i += stride; i < n; i += stride) {
      issue_scores(again + i);
      issue_values(i - stride);
      if (Backward && leader) wait_stores_read<0>(), arrive(&sh.matrix_empty[group][(i / stride - 1) % 2]);
      wait_products<1>();
      pin(s);
      free_x(again + i);
      to_weights(i);
      wait_products<0>();
      pin(o);
      free_y(i - stride);
      to_operand<T>(operand, s);
      write(i);
    }
    issue_values(i - stride);
    wait_products<0>();
    pin(o);
    free_y(i - stride);
  }

  if constexpr (Split) {
    float* space = reinterpret_cast<float*>(sh.x) + threadIdx.x % 128;
    sync_threads(1 + groups, 128 * groups);  // every tile has been read
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < D / 2; ++i) space[i * 128] = o[i];
    }
    sync_threads(1 + groups, 128 * groups);
    if (group == 0) {
#pragma unroll
      for (int i = 0; i < D / 2; ++i) o[i] += space[i * 128];
    }
  }
  // The result leaves through the place of the left operand, of which each group has read only its own rows.
  const bool has_result = !Split || group == 0, clears = !Split || group == 1;
  if (has_result) store_tile<T, D>(sh.left, rows, 64 * row_group, o);
  const int last = a.strip ? min(a.queries, (block_row / a.strip + 1) * a.strip) : a.queries;
  const int end = !a.clears || !clears ? 0 : a.strip ? max(1, keys_seen(last - 1, a)) : a.keys;
  if (n * keys < end) {
    if (leader) wait_stores_read<0>();
    sync_threads(1 + group, 128);
    for (int i = threadIdx.x % 128; i < Matrix::panel_bytes(64) / 16; i += 128)
      reinterpret_cast<uint4*>(sh.matrix[group][0])[i] = make_uint4(0, 0, 0, 0);
  }
  fence_shared();
  sync_threads(1 + group, 128);
  if (leader) {
    for (int p = 0; p < Operand::panels && has_result; ++p)
      store_box(&map_result, sh.left + p * Operand::panel_bytes(rows) + row_group * Operand::panel_bytes(64), 64 * p,
                row, head, batch);
    for (int column = n * keys; column < end; column += granule)
      store_box(&map_written, sh.matrix[group][0], column, row, head, batch);
    commit_stores();
    wait_stores_read<0>();
  }
#endif
}

RowsOf rows_of(const TensorRef& t) { return {t.data, t.strides[0], t.strides[1], t.strides[2]}; }

template <class T, int D, bool Split, bool Backward>
void run(const KernelCall& call, const TensorRef& left, const TensorRef& x, const TensorRef& y, const TensorRef& p,
         const TensorRef& written, const TensorRef& result) {
  using S = Shape<D, Split>;
  const auto& attrs = call.attrs.as<AttentionWeightsAttrs>();
  WeightsArgs a{};
  a.queries = int(left.dims[2]), a.keys = int(x.dims[2]), a.dim = int(left.dims[3]), a.heads = int(left.dims[1]);
  a.heads_per_kv = int(left.dims[1] / x.dims[1]);
  a.schedule = Schedule(int(ceil_div(a.queries, S::rows)), int(left.dims[0] * left.dims[1]), 4 * x.dims[2] * x.dims[3]);
  a.offset = clamped_offset(attrs.causal ? attrs.causal_offset : a.keys, a.queries, a.keys);
  a.strip = int(attrs.strip), a.clears = !Backward || written.data != p.data, a.scale = float(attrs.scale);
  if (Backward) a.grad_o = rows_of(left), a.o = rows_of(call.in[2]);
  auto kernel = attention_weights_kernel<T, D, Split, Backward>;
  constexpr int bytes = int(sizeof(typename S::Shared)), panel = Tile<D>::panel;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "attention_weights: cudaFuncSetAttribute");
  kernel<<<a.schedule.tiles(), 128 * (groups + 1), bytes, stream_of(call)>>>(
      map_of(left, 64, panel), map_of(x, S::keys, panel), map_of(y, S::keys, panel), map_of(p, 64, granule),
      map_of(written, 64, granule), map_of(result, 64, panel), a);
  check_cuda(cudaGetLastError(), "attention_weights");
}

// Whether blocks of 64 rows finish first: the longest block, or the share of each multiprocessor, decides. They
// bring each key twice as often.
bool splits(const KernelCall& call) {
  double heads = double(call.in[0].dims[0] * call.in[0].dims[1]), rows = double(call.in[0].dims[2]),
         longest = double(call.in[1].dims[2]), sms = multiprocessors();
  double share = heads * rows / 128 * longest / sms * (call.attrs.as<AttentionWeightsAttrs>().causal ? 0.5 : 1);
  auto time = [&](double block) { return block > share ? block : share; };
  return time(longest / 2) < 0.85 * time(longest);
}

template <bool Backward, class... Operands> void with_shape(const KernelCall& call, const Operands&... operands) {
  const TensorRef& q = call.in[0];
  const bool split = splits(call);
  auto with_type = [&]<class T>() {
    auto with_dim = [&]<int D>() {
      split ? run<T, D, true, Backward>(call, operands...) : run<T, D, false, Backward>(call, operands...);
    };
    if (q.dims[3] <= 32) with_dim.template operator()<32>();
    else if (q.dims[3] <= 64) with_dim.template operator()<64>();
    else with_dim.template operator()<128>();
  };
  q.dtype == DType::bf16 ? with_type.template operator()<bf16_t>() : with_type.template operator()<f16_t>();
}

}  // namespace

void attention_weights(const KernelCall& c) {
  with_shape<false>(c, c.in[0], c.in[1], c.in[2], c.out[0], c.out[0], c.out[1]);
}
void attention_weights_backward(const KernelCall& c) {
  with_shape<true>(c, c.in[0], c.in[1], c.in[4], c.in[3], c.out[0], c.out[1]);
}

}  // namespace sinter::cuda::hopper
