// Attention forward on Hopper. One producer warp brings tiles by TMA; each of `Groups` warpgroups owns 64 rows of
// queries and runs the online softmax over the key tiles, with the next tile's scores computed while it works
// (docs/attention.md has the picture).
//
// Where there are too few rows to fill the GPU (Split), a block has only 64 of them: its warpgroups share out the key
// tiles instead, and the first combines their results at the end.
#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_hopper.h"

namespace sinter::cuda::hopper {
namespace {

struct ForwardArgs {
  int queries, keys, heads, heads_per_kv;
  Schedule schedule;  // over blocks of queries and (batch, head)
  int offset;         // causal: query i sees keys <= i + offset
  float scale;
  float* lse;
  unsigned* ticket;  // next tile to hand out; null: one tile per block
};

template <int D, int Groups, int Keys, bool Split> struct ForwardShared {
  static constexpr int rows = Split ? 64 : 64 * Groups;
  // A group's next tile must be on its way while it works on one, and only its own tiles free their places for it.
  static constexpr int stages = !Split ? 2 : D <= 64 ? 2 * Groups : 3;
  static constexpr int q_stages = Split ? 1 : 2;  // the next block's queries arrive while this one's are worked on
  alignas(1024) char q[q_stages][Tile<D>::bytes(rows)];
  alignas(1024) char k[stages][Tile<D>::bytes(Keys)];
  alignas(1024) char v[stages][Tile<D>::bytes(Keys)];
  uint64_t q_full[2], q_empty[2], k_full[stages], k_empty[stages], v_full[stages], v_empty[stages], tile_full,
      tile_empty;
  int tile;
};

template <bool Causal> __device__ __forceinline__ int keys_seen(int last_row, const ForwardArgs& a) {
  return Causal ? max(0, min(a.keys, last_row + a.offset + 1)) : a.keys;
}

// Which of `Stages` buffers comes next, and the phase of its barriers.
template <int Stages> struct Turn {
  int stage = 0, phase = 0;
  __device__ __forceinline__ void skip(int n) {
    stage += n;
    if (stage >= Stages) stage -= Stages, phase ^= 1;
  }
};

[[maybe_unused]] constexpr float minus_infinity = -INFINITY;

// The softmax of one tile: s becomes exp(scale·(s − m)); rescale says by what earlier sums shrink.
template <bool Masked, int Keys>
__device__ __forceinline__ void softmax_tile(float (&s)[Keys / 2], float (&m)[2], float (&l)[2], float (&rescale)[2],
                                             float c, int limit) {
  // limit: columns seen by this thread's first row, counted from its own first column; the second row sees `step` more.
  if constexpr (Masked) {
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i) {
      int column = i / 4 * 8 + i % 2;
      // limit packs two rows: low half-word row 0, high half-word row 1
      int most = i / 2 % 2 ? limit >> 16 : int(short(limit));
      if (column >= most) s[i] = minus_infinity;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = s[2 * r];
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i)
      if (i / 2 % 2 == r) most = fmaxf(most, s[i]);
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    float larger = fmaxf(m[r], most);
    float base = (Masked && larger == minus_infinity ? 0.f : larger) * c;
    rescale[r] = shrink(m[r], base, c);
    m[r] = larger;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i)
      if (i / 2 % 2 == r) s[i] = fast_exp2(__fmaf_rn(s[i], c, -base)), sum += s[i];
    l[r] = l[r] * rescale[r] + sum;
  }
}

// Results of the warpgroups over disjoint sets of keys become one, in the first: each is
// shrunk to the largest score of all.
template <int D, int Groups>
__device__ __forceinline__ void combine(float* space, float (&o)[D / 2], float (&m)[2], float (&l)[2], float c) {
  int group = threadIdx.x / 128 - 1, t = threadIdx.x % 128;
  constexpr int values = D / 2 + 4;
  sync_threads(1, 128 * Groups);
  if (group > 0) {
    float* to = space + (group - 1) * values * 128 + t;
#pragma unroll
    for (int i = 0; i < D / 2; ++i) to[i * 128] = o[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) to[(D / 2 + r) * 128] = m[r], to[(D / 2 + 2 + r) * 128] = l[r];
  }
  sync_threads(1, 128 * Groups);
  if (group > 0) return;
#pragma unroll 1
  for (int g = 0; g < Groups - 1; ++g) {
    const float* theirs = space + g * values * 128 + t;
    float mine[2], other_part[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float other = theirs[(D / 2 + r) * 128], larger = fmaxf(m[r], other),
            base = larger == minus_infinity ? 0.f : larger * c;
      mine[r] = shrink(m[r], base, c), other_part[r] = shrink(other, base, c);
      m[r] = larger, l[r] = l[r] * mine[r] + theirs[(D / 2 + 2 + r) * 128] * other_part[r];
    }
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = o[i] * mine[i / 2 % 2] + theirs[i * 128] * other_part[i / 2 % 2];
  }
}

template <class T, int D, int Groups, int Keys, bool Causal, bool Split>
__global__ void __launch_bounds__(128 * (Groups + 1), 1)
    attention_forward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                      const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o,
                      const __grid_constant__ ForwardArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shared = ForwardShared<D, Groups, Keys, Split>;
  constexpr int stages = Shared::stages, rows = Shared::rows, row_groups = rows / 64, readers = Split ? 1 : Groups;
  constexpr int stride = Split ? Groups : 1;  // from one key tile of a group to its next
  extern __shared__ __align__(1024) char raw[];
  Shared& sh = *reinterpret_cast<Shared*>(raw);
  constexpr bool ping_pong = Groups > 1 && !Split;

  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) init_barrier(&sh.q_full[i], 1), init_barrier(&sh.q_empty[i], Groups);
    init_barrier(&sh.tile_full, 1), init_barrier(&sh.tile_empty, Groups);
    for (int i = 0; i < stages; ++i) {
      init_barrier(&sh.k_full[i], 1), init_barrier(&sh.k_empty[i], readers);
      init_barrier(&sh.v_full[i], 1), init_barrier(&sh.v_empty[i], readers);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    give_registers<Groups == 3 ? 32 : 40>();
    if (threadIdx.x != 0) return;
    prefetch_map(&map_q), prefetch_map(&map_k), prefetch_map(&map_v), prefetch_map(&map_o);
    Turn<stages> k_turn, v_turn;
    int tile = blockIdx.x;
    for (int round = 0; tile < a.schedule.tiles(); ++round) {
      int q_stage = Split ? 0 : round & 1, q_phase = Split ? 0 : round >> 1 & 1;
      Position at = a.schedule.at(tile, Causal);
      int head = at.head % a.heads, batch = at.head / a.heads;
      int row = at.block * rows, kv_head = head / a.heads_per_kv;
      int n = (keys_seen<Causal>(min(row + rows, a.queries) - 1, a) + Keys - 1) / Keys;
      wait(&sh.q_empty[q_stage], q_phase ^ 1);
      arrive_expecting(&sh.q_full[q_stage], Tile<D>::bytes(rows));
      for (int p = 0; p < Tile<D>::panels; ++p)
#pragma unroll 1
        for (int g = 0; g < row_groups; ++g)
          load_box(sh.q[q_stage] + p * Tile<D>::panel_bytes(rows) + g * Tile<D>::panel_bytes(64), &map_q,
                   &sh.q_full[q_stage], 64 * p, row + 64 * g, head, batch);
      auto load = [&](char* to, const CUtensorMap* map, uint64_t* full, uint64_t* empty, int phase, int j) {
        wait(empty, phase ^ 1);
        arrive_expecting(full, Tile<D>::bytes(Keys));
#pragma unroll 1
        for (int p = 0; p < Tile<D>::panels; ++p)
          load_box(to + p * Tile<D>::panel_bytes(Keys), map, full, 64 * p, j * Keys, kv_head, batch);
      };
      auto load_k = [&](int j) {
        load(sh.k[k_turn.stage], &map_k, &sh.k_full[k_turn.stage], &sh.k_empty[k_turn.stage], k_turn.phase, j);
        k_turn.skip(1);
      };
      auto load_v = [&](int j) {
        load(sh.v[v_turn.stage], &map_v, &sh.v_full[v_turn.stage], &sh.v_empty[v_turn.stage], v_turn.phase, j);
        v_turn.skip(1);
      };
      if (n > 0) load_k(n - 1);
#pragma unroll 1
      for (int j = n - 1; j >= 0; --j) {
        if (j > 0) load_k(j - 1);
        load_v(j);
      }
      tile = a.ticket ? int(atomicAdd(a.ticket, 1u)) + int(gridDim.x) : a.schedule.tiles();
      wait(&sh.tile_empty, (round & 1) ^ 1);
      sh.tile = tile;
      arrive(&sh.tile_full);
    }
    return;
  }

  take_registers<Groups == 3 ? 160 : 232>();
  int group = threadIdx.x / 128 - 1;
  bool leader = threadIdx.x % 128 == 0;
  const float c = a.scale * log2_e;
  Turn<stages> k_turn, v_turn;
  if constexpr (Split) k_turn.stage = v_turn.stage = group;
  const int row_group = Split ? 0 : group;
  auto my_turn = [&] {
    if constexpr (ping_pong) sync_threads(1 + group, 256);
  };
  auto your_turn = [&] {
    if constexpr (ping_pong) arrive_threads(1 + (group + 1) % Groups, 256);
  };
  if (ping_pong && group == Groups - 1) your_turn();  // the first group begins

  int tile = blockIdx.x;
  for (int round = 0; tile < a.schedule.tiles(); ++round) {
    int q_stage = Split ? 0 : round & 1, q_phase = Split ? 0 : round >> 1 & 1;
    uint64_t q_matrix = matrix<Tile<D>::row_bytes>(sh.q[q_stage] + row_group * Tile<D>::panel_bytes(64));
    int block_row = a.schedule.at(tile, Causal).block * rows, row = block_row + 64 * row_group;
    int n = (keys_seen<Causal>(min(block_row + rows, a.queries) - 1, a) + Keys - 1) / Keys;
    // What this group's own rows need: tiles from `mine` on are wholly hidden from it, those from `unmasked` on partly.
    int mine = row < a.queries ? (keys_seen<Causal>(min(row + 64, a.queries) - 1, a) + Keys - 1) / Keys : 0;
    int unmasked = Causal ? max(0, min(a.keys, row + a.offset + 1)) / Keys : a.keys / Keys;

    float o[D / 2], m[2] = {minus_infinity, minus_infinity}, l[2] = {0, 0}, rescale[2];
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;
    uint32_t p[Keys / 4];
    float s[Keys / 2];

    auto limit_of = [&](int j) {  // columns of tile j that this thread's two rows see, from its own first column
      int first = row + Fragment::row();
      int base = j * Keys + Fragment::column();
      int r0 = min(max(keys_seen<Causal>(first, a) - base, -1), Keys),
          r1 = min(max(keys_seen<Causal>(first + 8, a) - base, -1), Keys);
      return (r0 & 0xffff) | r1 << 16;
    };
    auto issue_scores = [&] {
      uint64_t k_matrix = matrix<Tile<D>::row_bytes>(sh.k[k_turn.stage]);
      pin(s);
      fence_registers();
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        Wgmma<T, Keys>::template shared<false, false>(s, q_matrix + Tile<D>::along(k, rows),
                                                      k_matrix + Tile<D>::along(k, Keys), k > 0);
      commit_products();
    };
    auto issue_values = [&] {
      uint64_t v_matrix = matrix<Tile<D>::row_bytes>(sh.v[v_turn.stage], Tile<D>::panel_bytes(Keys));
      pin(o);
      fence_registers();
#pragma unroll
      for (int k = 0; k < Keys / 16; ++k)
        Wgmma<T, D>::template registers<true>(o, p + 4 * k, v_matrix + Tile<D>::across(k), 1);
      commit_products();
    };
    auto release = [&](uint64_t* empty) { arrive_if(leader, empty); };

    wait(&sh.q_full[q_stage], q_phase);
    // Hidden from these rows, but not from the block's. All four warps must have seen a tile arrive before it is
    // released, or its next phase could be over, too, before a late one looks. Elsewhere the products between see
    // to that; here taking turns does.
    for (int hidden = n - mine; hidden > 0; --hidden) {
      wait(&sh.k_full[k_turn.stage], k_turn.phase);
      wait(&sh.v_full[v_turn.stage], v_turn.phase);
      my_turn();
      your_turn();
      release(&sh.k_empty[k_turn.stage]);
      k_turn.skip(stride);
      release(&sh.v_empty[v_turn.stage]);
      v_turn.skip(stride);
    }
    int j = mine - 1 - (Split ? group : 0);
    auto free_queries = [&] {  // the previous block's output has had time to leave
      if (leader && round > 0) wait_stores_read<0>(), arrive(&sh.q_empty[q_stage ^ 1]);
    };
    if (j < 0) free_queries();
    if (j >= 0) {
      wait(&sh.k_full[k_turn.stage], k_turn.phase);
      my_turn();
      issue_scores();
      your_turn();
      free_queries();
      wait_products<0>();
      pin(s);
      release(&sh.k_empty[k_turn.stage]);
      k_turn.skip(stride);
      softmax_tile<true, Keys>(s, m, l, rescale, c, limit_of(j));
      to_operand<T>(p, s);

      auto step = [&]<bool Masked>() {
        wait(&sh.k_full[k_turn.stage], k_turn.phase);
        my_turn();
        issue_scores();
        wait(&sh.v_full[v_turn.stage], v_turn.phase);
        issue_values();
        your_turn();
        wait_products<1>();
        pin(s);
        release(&sh.k_empty[k_turn.stage]);
        k_turn.skip(stride);
        softmax_tile<Masked, Keys>(s, m, l, rescale, c, Masked ? limit_of(j) : 0);
        wait_products<0>();
        pin(o);
        release(&sh.v_empty[v_turn.stage]);
        v_turn.skip(stride);
        to_operand<T>(p, s);
#pragma unroll
        for (int i = 0; i < D / 2; ++i) o[i] *= rescale[i / 2 % 2];
      };
      for (j -= stride; j >= unmasked; j -= stride) step.template operator()<true>();
      for (; j >= 0; j -= stride) step.template operator()<false>();

      wait(&sh.v_full[v_turn.stage], v_turn.phase);
      issue_values();
      wait_products<0>();
      pin(o);
      release(&sh.v_empty[v_turn.stage]);
      v_turn.skip(stride);
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(~0u, l[r], 1);
      l[r] += __shfl_xor_sync(~0u, l[r], 2);
    }
    asm volatile("" : "+r"(tile));  // found again here, the position costs no registers in the loop
    Position at = a.schedule.at(tile, Causal);
    int head = at.head % a.heads, batch = at.head / a.heads;
    if constexpr (Split) {
      combine<D, Groups>(reinterpret_cast<float*>(sh.k), o, m, l, c);  // every tile has been read
      if (group > 0) return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int i = row + Fragment::row() + 8 * r;
      float sum = l[r];
      if (threadIdx.x % 4 == 0 && i < a.queries)
        a.lse[int64_t(at.head) * a.queries + i] = sum == 0 ? minus_infinity : m[r] * a.scale + __logf(sum);
      l[r] = sum == 0 ? 0.f : 1.f / sum;
    }
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] *= l[i / 2 % 2];
    // The output leaves through the place of the queries, of which each group has read only its own rows.
    store_tile<T, D>(sh.q[q_stage], rows, 64 * row_group, o);
    fence_shared();
    sync_threads(1 + Groups + group, 128);
    if (leader) {
      for (int p = 0; p < Tile<D>::panels; ++p)
        store_box(&map_o, sh.q[q_stage] + p * Tile<D>::panel_bytes(rows) + row_group * Tile<D>::panel_bytes(64), 64 * p,
                  row, head, batch);
      commit_stores();
      if constexpr (Split) wait_stores_read<0>();
    }
    if constexpr (Split) return;
    wait(&sh.tile_full, round & 1);
    tile = sh.tile;
    sync_threads(1 + Groups + group, 128);
    arrive_if(leader, &sh.tile_empty);
  }
  if (leader) wait_stores_read<0>();
  if (ping_pong && group == 0) my_turn();  // the arrival that nobody else will meet
#endif
}

template <class T, int D, int Groups, bool Causal, bool Split> void run(const KernelCall& call) {
  constexpr int Keys = 128;
  using Shared = ForwardShared<D, Groups, Keys, Split>;
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.out[0];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  ForwardArgs a{};
  a.queries = int(q.dims[2]), a.keys = int(k.dims[2]), a.heads = int(q.dims[1]);
  a.heads_per_kv = int(q.dims[1] / k.dims[1]);
  a.schedule = Schedule(int(ceil_div(a.queries, Shared::rows)), int(q.dims[0] * q.dims[1]), 4 * k.dims[2] * k.dims[3]);
  a.offset = clamped_offset(attrs.causal_offset, a.queries, a.keys);
  a.scale = float(attrs.scale), a.lse = call.out[1].as<float>();
  int tiles = a.schedule.tiles(), grid = Split || tiles < multiprocessors() ? tiles : multiprocessors();
  if (grid < tiles) {
    a.ticket = static_cast<unsigned*>(call.workspace);
    check_cuda(cudaMemsetAsync(a.ticket, 0, sizeof(unsigned), stream_of(call)), "attention: cudaMemsetAsync");
  }
  auto kernel = attention_forward<T, D, Groups, Keys, Causal, Split>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared))),
             "attention: cudaFuncSetAttribute");
  int panel = Tile<D>::panel;
  kernel<<<grid, 128 * (Groups + 1), sizeof(Shared), stream_of(call)>>>(
      map_of(q, 64, panel), map_of(k, Keys, panel), map_of(v, Keys, panel), map_of(o, 64, panel), a);
  check_cuda(cudaGetLastError(), "attention");
}

// Which shape of block finishes first? Work is counted in products of 64 queries × 128 keys, at the rate of a full
// multiprocessor; the longest block, or the share of each multiprocessor, decides. The rates are measured ones (H200),
// relative to three groups of rows.
double estimate(const KernelCall& call, int rows, double rate, bool split) {
  const TensorRef &q = call.in[0], &k = call.in[1];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  double heads = double(q.dims[0] * q.dims[1]), blocks = double(ceil_div(q.dims[2], rows)),
         longest = double(ceil_div(k.dims[2], 128));
  double per_block = (split ? 1 : rows / 64) / rate, sms = multiprocessors();
  if (!attrs.causal) return double(ceil_div(int64_t(heads * blocks), int64_t(sms))) * longest * per_block;
  double share = heads * blocks * longest / 2 * per_block / sms;
  return longest * per_block > share ? longest * per_block : share;
}

template <class T, int D, bool Causal> void with_shape(const KernelCall& call) {
  if constexpr (D <= 64) {
    double three = estimate(call, 192, 1, false), two = estimate(call, 128, 0.9, false),
           split = estimate(call, 64, 0.6, true);
    if (split < three && split < two) run<T, D, 3, Causal, true>(call);
    else if (two < three) run<T, D, 2, Causal, false>(call);
    else run<T, D, 3, Causal, false>(call);
  } else {
    if (estimate(call, 64, 0.6, true) < estimate(call, 128, 1, false)) run<T, D, 2, Causal, true>(call);
    else run<T, D, 2, Causal, false>(call);
  }
}

}  // namespace

void attention(const KernelCall& call) {
  with_head_dim(call.in[0], [&]<class T, int D>() {
    call.attrs.as<AttentionAttrs>().causal ? with_shape<T, D, true>(call) : with_shape<T, D, false>(call);
  });
}

}  // namespace sinter::cuda::hopper
