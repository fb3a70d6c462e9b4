// AdamW on the weights of linear layers, with their gradients dyᵀ·x worked out tile by tile and never stored (Hopper).
// Speed of light: the larger of 2·tokens·rows·columns operations at the tensor cores' rate and 26 bytes per
// element (12 read, 14 written).
//
// One warp fetches tiles of dy and x by TMA, a warpgroup multiplies them, and twelve warps update the 128 × 128
// parameters whose gradients it leaves in shared memory, four rows at a time: they wait for memory while the next tile,
// which may be another weight's, is multiplied. A tile changes hands in two halves, so that the next one's upper rows
// can come while the lower ones of this are still in work.
#include "backend/cuda/adamw.cuh"
#include "backend/cuda/hopper.cuh"
#include "core/folded_update.h"

namespace sinter::cuda {
namespace {

using namespace hopper;

constexpr int tile = 128, depth = 64, stages = 4, panel_bytes = depth * 128;  // a panel: 64 columns of `depth` tokens

// A weight (rows × columns), and what its gradient is the product of.
struct Member {
  CUtensorMap dy, x;
  float *master, *m, *v;
  bf16_t* copy;
  int rows, columns;
  int end;  // its last tile + 1, counted over all members
};
struct ProductArgs {
  Member members[max_folded];
  const double* state;
  int tokens, tiles;
  AdamW rule;
};

// A row of the gradient's tile: padded, so that the product's registers hit all banks.
constexpr int pitch = tile + 8, update_warps = 12, block_threads = 256 + 32 * update_warps;

struct ProductShared {
  alignas(1024) char dy[stages][2][panel_bytes];
  alignas(1024) char x[stages][2][panel_bytes];
  alignas(16) float gradient[tile * pitch];
  uint64_t full[stages], empty[stages], half_full[2], half_empty[2];  // of the gradient: halves of its rows
  AdamW::Numbers numbers;
};

// Tiles in the order of work: member by member, in stripes of 16 tile rows, so that blocks at work
// together share what they read.
struct TileAt {
  const Member& of;
  int row, column;
  __device__ TileAt(const ProductArgs& a, int index) : of(member_of(a, index)) {
    int down = (of.rows + tile - 1) / tile, across = (of.columns + tile - 1) / tile;
    index -= of.end - down * across;
    int stripe = index / (16 * across) * 16, within = index - stripe * across, height = min(16, down - stripe);
    row = (stripe + within % height) * tile;
    column = within / height * tile;
  }
  static __device__ const Member& member_of(const ProductArgs& a, int index) {
    int i = 0;
    while (index >= a.members[i].end) ++i;
    return a.members[i];
  }
};

__global__ void __launch_bounds__(block_threads, 1) update_by_product(const __grid_constant__ ProductArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char raw[];
  ProductShared& sh = *reinterpret_cast<ProductShared*>(raw);
  if (a.state[state_skip] != 0) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) init_barrier(&sh.full[i], 1), init_barrier(&sh.empty[i], 4);
    for (int i = 0; i < 2; ++i) init_barrier(&sh.half_full[i], 128), init_barrier(&sh.half_empty[i], update_warps);
    fence_barrier_init();
  }
  __syncthreads();
  int steps = (a.tokens + depth - 1) / depth, lane = threadIdx.x % 32;

  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    int slot = 0;
    uint32_t phase = 1;
#pragma unroll 1
    for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
      TileAt at(a, t);
#pragma unroll 1
      for (int s = 0; s < steps; ++s) {
        wait(&sh.empty[slot], phase);
        arrive_expecting(&sh.full[slot], 4 * panel_bytes);
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          load_box(sh.dy[slot][p], &at.of.dy, &sh.full[slot], at.row + 64 * p, s * depth, 0, 0);
          load_box(sh.x[slot][p], &at.of.x, &sh.full[slot], at.column + 64 * p, s * depth, 0, 0);
        }
        if (++slot == stages) slot = 0, phase ^= 1;
      }
    }
  } else if (threadIdx.x < 256) {
    take_registers<168>();  // what the first four warps gave: all the block has, 24 + 168 + 3 · 96 times 128
    int slot = 0, last = 0;
    uint32_t phase = 0, taken = 1;
#pragma unroll 1
    for (int t = blockIdx.x; t < a.tiles; t += gridDim.x, taken ^= 1) {
      float top[64], bottom[64];
#pragma unroll 1
      for (int s = 0; s < steps; ++s) {
        uint64_t dy0 = matrix<128>(sh.dy[slot][0]), dy1 = matrix<128>(sh.dy[slot][1]);
        uint64_t x = matrix<128>(sh.x[slot][0], panel_bytes);
        wait(&sh.full[slot], phase);
        pin(top), pin(bottom);
        fence_registers();
#pragma unroll
        for (int k = 0; k < depth / 16; ++k) {
          Wgmma<bf16_t, 128>::shared<true, true>(top, dy0 + k * 128, x + k * 128, s > 0 || k > 0);
          Wgmma<bf16_t, 128>::shared<true, true>(bottom, dy1 + k * 128, x + k * 128, s > 0 || k > 0);
        }
        commit_products();
        wait_products<1>();
        if (s > 0) arrive_if(lane == 0, &sh.empty[last]);
        last = slot;
        if (++slot == stages) slot = 0, phase ^= 1;
      }
      wait_products<0>();
      pin(top), pin(bottom);
      arrive_if(lane == 0, &sh.empty[last]);
      float* to = sh.gradient + Fragment::row() * pitch + Fragment::column();
      auto hand_over = [&](int half, const float(&rows)[64]) {
        wait(&sh.half_empty[half], taken);
#pragma unroll
        for (int j = 0; j < 16; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            *reinterpret_cast<float2*>(to + (64 * half + 8 * r) * pitch + 8 * j) = {rows[4 * j + 2 * r],
                                                                                    rows[4 * j + 2 * r + 1]};
        arrive(&sh.half_full[half]);
      };
      hand_over(0, top);
      hand_over(1, bottom);
    }
  } else {
    int thread = int(threadIdx.x) - 256, warp = thread / 32;
    a.rule.prepare(a.state, sh.numbers, unsigned(thread));
    sync_threads(1, 32 * update_warps);
    AdamW::Numbers c = sh.numbers;
    uint32_t phase = 0;
    constexpr int groups = tile / 4;  // of four rows
    int first = warp;
#pragma unroll 1
    for (int t = blockIdx.x; t < a.tiles; t += gridDim.x, phase ^= 1) {
      TileAt at(a, t);
      int columns = at.of.columns, arrived = 0;
      int g = first;
#pragma unroll 1
      for (; g < groups; g += update_warps) {
        int row = at.row + 4 * g, column = at.column + 4 * lane;
        int rows = column < columns ? at.of.rows - row : 0;
        int64_t begin = int64_t(row) * columns + column;
        float *master = at.of.master + begin, *first_moment = at.of.m + begin, *second_moment = at.of.v + begin;
        bf16_t* copy = at.of.copy + begin;
        float4 p[4], m[4], v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int o = i * columns;
          if (i >= rows) continue;
          // Read and written once: it must not push out of the cache what is multiplied.
          p[i] = __ldcs(reinterpret_cast<const float4*>(master + o));
          m[i] = __ldcs(reinterpret_cast<const float4*>(first_moment + o));
          v[i] = __ldcs(reinterpret_cast<const float4*>(second_moment + o));
        }
        if (arrived == 0) wait(&sh.half_full[0], phase), arrived = 1;
        if (g >= groups / 2 && arrived == 1) {
          __syncwarp();
          arrive_if(lane == 0, &sh.half_empty[0]);
          wait(&sh.half_full[1], phase), arrived = 2;
        }
        const float* from = sh.gradient + 4 * g * pitch + 4 * lane;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int o = i * columns;
          if (i >= rows) continue;
          float4 g = *reinterpret_cast<const float4*>(from + i * pitch);
          AdamW::update(c, p[i].x, g.x, m[i].x, v[i].x);
          AdamW::update(c, p[i].y, g.y, m[i].y, v[i].y);
          AdamW::update(c, p[i].z, g.z, m[i].z, v[i].z);
          AdamW::update(c, p[i].w, g.w, m[i].w, v[i].w);
          __stcs(reinterpret_cast<float4*>(master + o), p[i]);
          __stcs(reinterpret_cast<float4*>(first_moment + o), m[i]);
          __stcs(reinterpret_cast<float4*>(second_moment + o), v[i]);
          if (at.of.copy)
            __stcs(reinterpret_cast<uint2*>(copy + o), uint2{pack_bf16(p[i].x, p[i].y), pack_bf16(p[i].z, p[i].w)});
        }
      }
      __syncwarp();
      arrive_if(lane == 0, &sh.half_empty[1]);
      // The groups of all tiles are dealt in one round, so that no warp has more of them.
      first = g - groups;
    }
  }
#endif
}

// dy and x as one matrix of all tokens.
TensorRef folded(const TensorRef& t) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < t.rank; ++d) rows *= t.dims[d];
  TensorRef r{t.data, t.dtype, 4, {1, 1, rows, t.dims[t.rank - 1]}, {0, 0, t.dims[t.rank - 1], 1}};
  for (int d = t.rank - 2; d >= 0; --d)
    if (t.dims[d] != 1) {
      r.strides[2] = t.strides[d];
      break;
    }
  return r;
}

}  // namespace

void adamw_product(const KernelCall& call) {
  if (!can_run()) refuse("adamw_product", "it is made for Hopper (sm_90a), and this GPU or this build is not");
  const auto& attrs = call.attrs.as<AdamWProductAttrs>();
  ProductArgs a{};
  a.state = call.in[0].as<double>(), a.rule = AdamW{attrs.rule};
  for (int i = 0; i < folded_weights(call); ++i) {
    auto operand = [&](FoldedOperand which) -> const TensorRef& { return call.in[folded_input(i, which)]; };
    TensorRef dy = folded(operand(folded_dy)), x = folded(operand(folded_x));
    if (dy.dtype != DType::bf16 || x.dtype != DType::bf16) refuse("adamw_product", "dy and x must be bf16");
    need_f32("adamw_product", {&operand(folded_master), &operand(folded_m), &operand(folded_v)});
    a.tokens = int(dy.dims[2]);
    Member& m = a.members[i];
    m = {map_of(dy, depth, 64),
         map_of(x, depth, 64),
         operand(folded_master).as<float>(),
         operand(folded_m).as<float>(),
         operand(folded_v).as<float>(),
         folded_input(i, folded_copy) < call.n_in ? operand(folded_copy).as<bf16_t>() : nullptr,
         int(dy.dims[3]),
         int(x.dims[3]),
         0};
    a.tiles += int(ceil_div(m.rows, tile) * ceil_div(m.columns, tile));
    m.end = a.tiles;
  }
  if (a.tiles == 0 || a.tokens == 0) return;
  check_cuda(
      cudaFuncSetAttribute(update_by_product, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ProductShared)),
      "adamw_product: shared memory");
  int blocks = max(1, int(attrs.share * multiprocessors()));
  update_by_product<<<unsigned(min(blocks, a.tiles)), block_threads, sizeof(ProductShared), stream_of(call)>>>(a);
  check_cuda(cudaGetLastError(), "adamw_product");
}

}  // namespace sinter::cuda
