// Attention backward on Hopper. A block owns 128 keys (two warpgroups, 64 each), keeps dk and dv in registers, and
// meets the queries tile by tile: scores are computed transposed (keys × queries), so that the probabilities and their
// gradients are already the left operand of dv = pᵀ·do and dk = dsᵀ·q. Only ds goes through shared memory, for
// dq = ds·k, which is added up in fp32 in the workspace by bulk reductions; before and after come two small kernels
// (docs/attention.md has the picture).
#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_hopper.h"
#include "backend/workspace.h"

namespace sinter::cuda::hopper {
namespace {

// dq is summed up in granules of 64 rows, each in the order in which the product's registers hold it: register i of
// thread t (t < 128) lies at i / 4 · 512 + 4t + i % 4; a second warpgroup's columns (64 and on) follow the first's.
struct Statistics {
  float *l2, *delta, *dq;  // per padded row of queries: L·log2(e), rowsum(do∘o), and the sums
  unsigned* turns;         // per 64 rows: how many key blocks have added theirs (deterministic)
};

struct BackwardArgs {
  int queries, keys, heads, kv_heads, group;
  Schedule schedule;  // over blocks of keys and (batch, kv head)
  int padded, offset;
  float scale;
  Statistics statistics;
};

// ---- before and after ----

struct RowArgs {
  const void *o, *grad;
  const float* lse;
  int64_t o_strides[3], grad_strides[3];
  int heads, queries, padded, head_dim, granule;  // granule: floats of dq per 64 rows
  Statistics statistics;
};
// 64 padded rows a block, 16 threads each.
template <class T> __global__ void __launch_bounds__(256) attention_prepare(const __grid_constant__ RowArgs a) {
  int granules = a.padded / 64, bh = blockIdx.x / granules, granule = blockIdx.x % granules, b = bh / a.heads,
      h = bh % a.heads;
  float4* dq = reinterpret_cast<float4*>(a.statistics.dq + int64_t(blockIdx.x) * a.granule);
  for (int i = threadIdx.x; i < a.granule / 4; i += 256) dq[i] = {0, 0, 0, 0};
  if (threadIdx.x == 0) a.statistics.turns[blockIdx.x] = 0;
  int first = threadIdx.x % 16 * 8;
  for (int r = threadIdx.x / 16; r < 64; r += 16) {
    int row = granule * 64 + r;
    float sum = 0;
    if (row < a.queries && first < a.head_dim) {
      const T* o = static_cast<const T*>(a.o) + b * a.o_strides[0] + h * a.o_strides[1] + row * a.o_strides[2] + first;
      const T* g = static_cast<const T*>(a.grad) + b * a.grad_strides[0] + h * a.grad_strides[1] +
                   row * a.grad_strides[2] + first;
      if (first + 8 <= a.head_dim) {
        float x[8], y[8];
        unpack(load_pack<T, 8>(o), x);
        unpack(load_pack<T, 8>(g), y);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
      } else {
        for (int i = 0; first + i < a.head_dim; ++i) sum += to_float(o[i]) * to_float(g[i]);
      }
    }
#pragma unroll
    for (int mask = 8; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
    if (threadIdx.x % 16 == 0) {
      int64_t at = int64_t(bh) * a.padded + row;
      // A row beyond the end gets p = exp2(−inf) = 0; one that sees nothing is masked anyway, but must not make NaNs.
      float l = row < a.queries ? a.lse[int64_t(bh) * a.queries + row] : INFINITY;
      a.statistics.l2[at] = l == -INFINITY ? 0.f : l * log2_e;
      a.statistics.delta[at] = sum;
    }
  }
}

struct FinishArgs {
  void* dq;
  int64_t strides[3];
  int heads, queries, padded, head_dim, granule;
  float scale;
  const float* sums;
};
// A granule a block, 128 threads for each warpgroup's part: registers' order → rows in
// shared memory → whole lines of dq.
template <class T> __global__ void __launch_bounds__(256) attention_finish(const __grid_constant__ FinishArgs a) {
  constexpr int pitch = 64 + 8;  // of a row: rows fall into different banks
  __shared__ __align__(16) T tile[2][64 * pitch];
  int granules = a.padded / 64, bh = blockIdx.x / granules, granule = blockIdx.x % granules;
  int part = threadIdx.x / 128, t = threadIdx.x % 128;
  const float4* sums = reinterpret_cast<const float4*>(a.sums + int64_t(blockIdx.x) * a.granule) + part * 1024;
  int groups = (part == 0 ? min(a.granule, 4096) : a.granule - 4096) / 512;  // of 8 columns
  float4 x[8];
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < groups) x[j] = sums[j * 128 + t];
  T* at = &tile[part][(t / 32 * 16 + t % 32 / 4) * pitch + t % 4 * 2];
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < groups) {
      *reinterpret_cast<uint32_t*>(at + 8 * j) = pack_pair<T>(x[j].x * a.scale, x[j].y * a.scale);
      *reinterpret_cast<uint32_t*>(at + 8 * pitch + 8 * j) = pack_pair<T>(x[j].z * a.scale, x[j].w * a.scale);
    }
  __syncthreads();
  T* out = static_cast<T*>(a.dq) + bh / a.heads * a.strides[0] + bh % a.heads * a.strides[1];
  for (int i = t; i < 64 * groups; i += 128) {
    int r = i / groups, column = i % groups * 8, row = granule * 64 + r;
    const T* from = &tile[part][r * pitch + column];
    T* to = out + row * a.strides[2] + part * 64 + column;
    int left = a.head_dim - part * 64 - column;
    if (row >= a.queries) break;
    if (left >= 8) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    else
      for (int c = 0; c < left; ++c) to[c] = from[c];
  }
}

// ---- the main kernel ----

constexpr int block_keys = 128;

template <int D> struct BackwardShared {
  static constexpr int rows = D <= 64 ? 128 : 64;  // queries per tile
  alignas(1024) char k[Tile<D>::bytes(block_keys)];
  alignas(1024) char v[Tile<D>::bytes(block_keys)];
  alignas(1024) char q[2][Tile<D>::bytes(rows)];
  alignas(1024) char grad[2][Tile<D>::bytes(rows)];
  alignas(1024) char ds[2][Tile<rows>::bytes(block_keys)];
  alignas(1024) float dq[2][64 * (D <= 64 ? D : 64)];
  alignas(128) float l2[2][rows];
  alignas(128) float delta[2][rows];
  uint64_t k_full, v_full, q_full[2], q_empty[2], grad_full[2], grad_empty[2], dq_full[2], dq_empty[2];
};

template <class T, int D, bool Causal, bool Deterministic>
__global__ void __launch_bounds__(384, 1)
    attention_backward_main(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                            const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_grad,
                            const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv,
                            const __grid_constant__ BackwardArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = BackwardShared<D>;
  constexpr int rows = Shared::rows, dq_columns = D <= 64 ? D : 64, granule = 64 * D;
  extern __shared__ __align__(1024) char raw[];
  Shared& sh = *reinterpret_cast<Shared*>(raw);

  if (threadIdx.x == 0) {
    init_barrier(&sh.k_full, 1), init_barrier(&sh.v_full, 1);
    for (int i = 0; i < 2; ++i) {
      init_barrier(&sh.q_full[i], 1), init_barrier(&sh.q_empty[i], 2);
      init_barrier(&sh.grad_full[i], 1), init_barrier(&sh.grad_empty[i], 2);
      init_barrier(&sh.dq_full[i], 128), init_barrier(&sh.dq_empty[i], 1);
    }
    fence_barrier_init();
  }
  __syncthreads();

  Position at = a.schedule.at(blockIdx.x, Causal && Deterministic);
  int batch = at.head / a.kv_heads, kv_head = at.head % a.kv_heads, key = at.block * block_keys;
  // Causal: queries before key − offset see none of these keys.
  int blocks = (a.queries + rows - 1) / rows;
  int first = !Causal ? 0 : key - a.offset >= a.queries ? blocks : max(0, key - a.offset) / rows;
  int turns = (blocks - first) * a.group;

  if (threadIdx.x < 128) {
    give_registers<32>();
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0) return;
    if (warp == 0) {
      auto load_once = [&](char* to, const CUtensorMap* map, uint64_t* full) {
        arrive_expecting(full, Tile<D>::bytes(block_keys));
#pragma unroll 1
        for (int p = 0; p < Tile<D>::panels; ++p)
          load_box(to + p * Tile<D>::panel_bytes(block_keys), map, full, 64 * p, key, kv_head, batch);
      };
      int head = kv_head * a.group, block = first;
#pragma unroll 1
      for (int i = 0; i < turns; ++i) {
        int stage = i & 1, phase = (i >> 1 & 1) ^ 1;
        int64_t row = int64_t(batch * a.heads + head) * a.padded + block * rows;
        if (i == 0) load_once(sh.k, &map_k, &sh.k_full);
        wait(&sh.q_empty[stage], phase);
        arrive_expecting(&sh.q_full[stage], Tile<D>::bytes(rows) + 4 * rows);
#pragma unroll 1
        for (int p = 0; p < Tile<D>::panels; ++p)
          load_box(sh.q[stage] + p * Tile<D>::panel_bytes(rows), &map_q, &sh.q_full[stage], 64 * p, block * rows, head,
                   batch);
        load_bytes(sh.l2[stage], a.statistics.l2 + row, &sh.q_full[stage], 4 * rows);
        if (i == 0) load_once(sh.v, &map_v, &sh.v_full);
        wait(&sh.grad_empty[stage], phase);
        arrive_expecting(&sh.grad_full[stage], Tile<D>::bytes(rows) + 4 * rows);
#pragma unroll 1
        for (int p = 0; p < Tile<D>::panels; ++p)
          load_box(sh.grad[stage] + p * Tile<D>::panel_bytes(rows), &map_grad, &sh.grad_full[stage], 64 * p,
                   block * rows, head, batch);
        load_bytes(sh.delta[stage], a.statistics.delta + row, &sh.grad_full[stage], 4 * rows);
        if (++block == blocks) block = first, ++head;
      }
    } else if (warp <= 2) {  // adds a warpgroup's dq to the sums
      int group = warp - 1;
      int head = kv_head * a.group, block = first;
#pragma unroll 1
      for (int i = 0; i < turns; ++i) {
        // D <= 64: each warpgroup has a granule of its own; above, each has its columns of the one granule.
        int64_t g = int64_t(batch * a.heads + head) * (a.padded / 64) + (D <= 64 ? 2 * block + group : block);
        constexpr int second = D <= 64 ? 64 * D : 64 * (D - 64);
        wait(&sh.dq_full[group], i & 1);
        unsigned* turn = a.statistics.turns + g;
        if constexpr (Deterministic) {
          // Key blocks add in a fixed order: causal from the last that these queries see to the first, else from the
          // first on. So a block waits only for blocks that were launched before it.
          int last = min(a.schedule.blocks - 1, (min((block + 1) * rows, a.queries) - 1 + a.offset) / block_keys);
          unsigned mine = Causal ? unsigned(last - at.block) : unsigned(at.block);
          unsigned seen;
          do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(turn) : "memory");
          } while ((D <= 64 ? seen : seen >> (16 * group) & 0xffffu) !=
                   mine);  // above 64, two warpgroups share the counter
        }
        add_floats(a.statistics.dq + g * granule + (D <= 64 ? 0 : group * 4096), sh.dq[group],
                   4 * (group == 0 ? 64 * dq_columns : second));
        commit_stores();
        if constexpr (Deterministic) {
          wait_stores();
          __threadfence();
          atomicAdd(turn, D <= 64 ? 1u : 1u << (16 * group));
        } else {
          wait_stores_read<0>();
        }
        arrive(&sh.dq_empty[group]);
        if (++block == blocks) block = first, ++head;
      }
      wait_stores();
    }
    return;
  }

  take_registers<232>();
  int group = threadIdx.x / 128 - 1;
  bool leader = threadIdx.x % 128 == 0;
  const float c = a.scale * log2_e;
  int my_key = key + 64 * group;
  float dk[D / 2], dv[D / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) dk[i] = 0, dv[i] = 0;
  uint64_t k_rows = matrix<Tile<D>::row_bytes>(sh.k + group * Tile<D>::panel_bytes(64));
  uint64_t v_rows = matrix<Tile<D>::row_bytes>(sh.v + group * Tile<D>::panel_bytes(64));
  uint64_t k_columns = matrix<Tile<D>::row_bytes>(sh.k + (D <= 64 ? 0 : group * Tile<D>::panel_bytes(block_keys)));
  if (turns > 0) wait(&sh.k_full, 0);

  int block = first;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    int stage = i & 1, phase = i >> 1 & 1, row = block * rows;
    float s[rows / 2], dp[rows / 2];
    uint64_t q_matrix = matrix<Tile<D>::row_bytes>(sh.q[stage], Tile<D>::panel_bytes(rows));
    uint64_t grad_matrix = matrix<Tile<D>::row_bytes>(sh.grad[stage], Tile<D>::panel_bytes(rows));
    wait(&sh.q_full[stage], phase);
    pin(s);
    fence_registers();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, rows>::template shared<false, false>(s, k_rows + Tile<D>::along(k, block_keys),
                                                    q_matrix + Tile<D>::along(k, rows), k > 0);
    commit_products();
    wait(&sh.v_full, 0);
    wait(&sh.grad_full[stage], phase);
    pin(dp);
    fence_registers();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      Wgmma<T, rows>::template shared<false, false>(dp, v_rows + Tile<D>::along(k, block_keys),
                                                    grad_matrix + Tile<D>::along(k, rows), k > 0);
    commit_products();

    wait_products<1>();
    pin(s);
    const float* l2 = sh.l2[stage] + Fragment::column();
#pragma unroll
    for (int j = 0; j < rows / 8; ++j) {
      float2 l = *reinterpret_cast<const float2*>(l2 + 8 * j);
#pragma unroll
      for (int r = 0; r < 4; ++r) s[4 * j + r] = fast_exp2(__fmaf_rn(s[4 * j + r], c, -(r % 2 ? l.y : l.x)));
    }
    if ((Causal && row + a.offset < my_key + 63) || my_key + 64 > a.keys) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int k = my_key + Fragment::row() + 8 * r;
        // The first query that sees key k, counted from this thread's own first column.
        int from = k >= a.keys ? rows : Causal ? k - a.offset - row - Fragment::column() : 0;
#pragma unroll
        for (int j = 0; j < rows / 8; ++j) {
          if (8 * j < from) s[4 * j + 2 * r] = 0;
          if (8 * j + 1 < from) s[4 * j + 2 * r + 1] = 0;
        }
      }
    }
    wait_products<0>();
    pin(dp);
    const float* delta = sh.delta[stage] + Fragment::column();
#pragma unroll
    for (int j = 0; j < rows / 8; ++j) {
      float2 d = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
      for (int r = 0; r < 4; ++r) dp[4 * j + r] = s[4 * j + r] * (dp[4 * j + r] - (r % 2 ? d.y : d.x));
    }
    uint32_t p16[rows / 4], ds16[rows / 4];
    to_operand<T>(p16, s);
    to_operand<T>(ds16, dp);
    {
      int lane = threadIdx.x % 32, at_row = 64 * group + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int k = 0; k < rows / 16; ++k) {
        char* panel = sh.ds[stage] + k / 4 * Tile<rows>::panel_bytes(block_keys);
        store_blocks(shared_address(panel) + swizzled<128>(at_row, k % 4 * 32 + lane / 16 * 16), ds16[4 * k],
                     ds16[4 * k + 1], ds16[4 * k + 2], ds16[4 * k + 3]);
      }
    }
    pin(dv);
    fence_registers();
#pragma unroll
    for (int k = 0; k < rows / 16; ++k)
      Wgmma<T, D>::template registers<true>(dv, p16 + 4 * k, grad_matrix + Tile<D>::across(k), 1);
    commit_products();
    fence_shared();
    sync_threads(1, 256);

    float dq[dq_columns / 2];
    uint64_t ds_matrix = matrix<128>(sh.ds[stage] + (D <= 64 ? group * Tile<rows>::panel_bytes(block_keys) : 0));
    pin(dq);
    fence_registers();
#pragma unroll
    for (int k = 0; k < block_keys / 16; ++k)
      Wgmma<T, dq_columns>::template shared<true, true>(dq, ds_matrix + k * 128, k_columns + Tile<D>::across(k), k > 0);
    commit_products();
    wait_products<1>();
    pin(dv);
    arrive_if(leader, &sh.grad_empty[stage]);
    pin(dk);
    fence_registers();
#pragma unroll
    for (int k = 0; k < rows / 16; ++k)
      Wgmma<T, D>::template registers<true>(dk, ds16 + 4 * k, q_matrix + Tile<D>::across(k), 1);
    commit_products();
    wait_products<1>();
    pin(dq);
    wait(&sh.dq_empty[group], (i & 1) ^ 1);
#pragma unroll
    for (int j = 0; j < dq_columns / 8; ++j)
      *reinterpret_cast<float4*>(&sh.dq[group][j * 512 + threadIdx.x % 128 * 4]) = {dq[4 * j], dq[4 * j + 1],
                                                                                    dq[4 * j + 2], dq[4 * j + 3]};
    fence_shared();
    arrive(&sh.dq_full[group]);
    wait_products<0>();
    pin(dk);
    arrive_if(leader, &sh.q_empty[stage]);
    if (++block == blocks) block = first;
  }

#pragma unroll
  for (int i = 0; i < D / 2; ++i) dk[i] *= a.scale;
  sync_threads(1, 256);  // nobody reads k and v any more: the gradients leave through their places
  store_tile<T, D>(sh.k, block_keys, 64 * group, dk);
  store_tile<T, D>(sh.v, block_keys, 64 * group, dv);
  fence_shared();
  sync_threads(2 + group, 128);
  if (leader) {
    for (int p = 0; p < Tile<D>::panels; ++p) {
      int from = p * Tile<D>::panel_bytes(block_keys) + group * Tile<D>::panel_bytes(64);
      store_box(&map_dk, sh.k + from, 64 * p, my_key, kv_head, batch);
      store_box(&map_dv, sh.v + from, 64 * p, my_key, kv_head, batch);
    }
    commit_stores();
    wait_stores_read<0>();
  }
#endif
}

template <class T, int D, bool Causal, bool Deterministic> void run(const KernelCall& call) {
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.in[3], &grad = call.in[5],
                  &dq = call.out[0];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  cudaStream_t stream = stream_of(call);
  BackwardArgs a{};
  a.queries = int(q.dims[2]), a.keys = int(k.dims[2]), a.heads = int(q.dims[1]), a.kv_heads = int(k.dims[1]);
  a.group = a.heads / a.kv_heads, a.padded = int(workspace::padded_queries(a.queries));
  a.offset = clamped_offset(attrs.causal_offset, a.queries, a.keys), a.scale = float(attrs.scale);
  int64_t heads = q.dims[0] * a.heads, rows = heads * a.padded;
  float* space = static_cast<float*>(call.workspace);
  a.statistics = {space, space + rows, space + 2 * rows,
                  reinterpret_cast<unsigned*>(space + rows * (2 + workspace::padded_head_dim(q.dims[3])))};
  a.schedule =
      Schedule(int(ceil_div(a.keys, block_keys)), int(q.dims[0] * a.kv_heads), 8 * q.dims[2] * q.dims[3] * a.group);
  int granules = int(rows / 64);

  RowArgs r{o.data,    grad.data, call.in[4].as<float>(), {},     {},          a.heads,
            a.queries, a.padded,  int(q.dims[3]),         64 * D, a.statistics};
  FinishArgs f{dq.data, {}, a.heads, a.queries, a.padded, int(q.dims[3]), 64 * D, a.scale, a.statistics.dq};
  for (int i = 0; i < 3; ++i)
    r.o_strides[i] = o.strides[i], r.grad_strides[i] = grad.strides[i], f.strides[i] = dq.strides[i];

  launch("attention_backward", attention_prepare<T>, granules, 256, stream, r);
  using Shared = BackwardShared<D>;
  auto kernel = attention_backward_main<T, D, Causal, Deterministic>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared))),
             "attention_backward: cudaFuncSetAttribute");
  int panel = Tile<D>::panel;
  kernel<<<a.schedule.tiles(), 384, sizeof(Shared), stream>>>(
      map_of(q, Shared::rows, panel), map_of(k, block_keys, panel), map_of(v, block_keys, panel),
      map_of(grad, Shared::rows, panel), map_of(call.out[1], 64, panel), map_of(call.out[2], 64, panel), a);
  check_cuda(cudaGetLastError(), "attention_backward");
  launch("attention_backward", attention_finish<T>, granules, D <= 64 ? 128 : 256, stream, f);
}

template <class T, int D> void with_flags(const KernelCall& call) {
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  if (attrs.causal) attrs.deterministic ? run<T, D, true, true>(call) : run<T, D, true, false>(call);
  else attrs.deterministic ? run<T, D, false, true>(call) : run<T, D, false, false>(call);
}

}  // namespace

void attention_backward(const KernelCall& call) {
  with_head_dim(call.in[0], [&]<class T, int D>() { with_flags<T, D>(call); });
}

}  // namespace sinter::cuda::hopper
