// What the Hopper attention kernels share: how tiles of a head dimension lie in shared
// memory, and the maps that TMA reads.
#pragma once
#include "backend/cuda/hopper.cuh"
#include "core/attrs.h"

namespace sinter::cuda::hopper {

// Rows of D 16-bit values: Note [Tiles in shared memory]. D need not fill its last panel; TMA pads with zeros.
template <int D> struct Tile {
  static constexpr int panel = D < 64 ? D : 64, panels = (D + 63) / 64, row_bytes = 2 * panel;
  static constexpr int panel_bytes(int rows) { return rows * row_bytes; }
  static constexpr int bytes(int rows) { return panels * panel_bytes(rows); }
  // Descriptor steps (16-byte units). along: 16 columns further in a tile of `rows` rows; across: 16 rows further.
  static __host__ __device__ constexpr int along(int k, int rows) {
    constexpr int per_panel = panel / 16;
    return (k / per_panel * panel_bytes(rows) + k % per_panel * 32) / 16;
  }
  static __host__ __device__ constexpr int across(int k) { return k * 16 * row_bytes / 16; }
};

// Accumulators (64 × 16k columns) as the A operand of the next product: the layouts coincide.
template <class T, int N> __device__ __forceinline__ void to_operand(uint32_t (&a)[N / 2], const float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) a[i] = pack_pair<T>(d[2 * i], d[2 * i + 1]);
}

// 64 × D accumulators, rounded, to a warpgroup's 64 rows of a tile of `rows` rows.
template <class T, int D>
__device__ __forceinline__ void store_tile(char* tile, int rows, int first_row, const float (&d)[D / 2]) {
  int lane = threadIdx.x % 32, row = first_row + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    constexpr int per_panel = Tile<D>::panel / 16;
    char* panel = tile + k / per_panel * Tile<D>::panel_bytes(rows);
    uint32_t at = shared_address(panel) + swizzled<Tile<D>::row_bytes>(row, k % per_panel * 32 + lane / 16 * 16);
    store_blocks(at, pack_pair<T>(d[8 * k], d[8 * k + 1]), pack_pair<T>(d[8 * k + 2], d[8 * k + 3]),
                 pack_pair<T>(d[8 * k + 4], d[8 * k + 5]), pack_pair<T>(d[8 * k + 6], d[8 * k + 7]));
  }
}

struct Position {
  int block, head;
};
// The order of work: blocks of one head's rows × heads. The heavy blocks come first (with a causal mask they
// differ), but heads are taken in sections whose tensors fit the L2 cache, because blocks at work at the
// same time then read the same rows.
struct Schedule {
  int blocks = 0, heads = 0, section = 1;

  Schedule() = default;
  Schedule(int blocks, int heads, int64_t bytes_per_head) : blocks(blocks), heads(heads) {
    int64_t fit = (int64_t(32) << 20) / (bytes_per_head > 0 ? bytes_per_head : 1);
    section = int(fit < 1 ? 1 : fit > heads ? heads : fit);
  }
  __host__ __device__ int tiles() const { return blocks * heads; }
  __device__ __forceinline__ Position at(int tile, bool last_first) const {
    int first = tile / (section * blocks) * section, within = tile % (section * blocks),
        count = min(section, heads - first);
    int block = within / count;
    return {last_first ? blocks - 1 - block : block, first + within % count};
  }
};

inline int clamped_offset(int64_t offset, int64_t queries, int64_t keys) {
  return int(offset < -queries ? -queries : offset > keys ? keys : offset);
}

// f<T, D>() for a call's element type and the smallest head dimension with a kernel that holds its own.
template <class T, class F> void with_head_dim_of(int64_t d, F&& f) {
  if (d <= 16) f.template operator()<T, 16>();
  else if (d <= 32) f.template operator()<T, 32>();
  else if (d <= 64) f.template operator()<T, 64>();
  else if (d <= 80) f.template operator()<T, 80>();
  else if (d <= 96) f.template operator()<T, 96>();
  else f.template operator()<T, 128>();
}
template <class F> void with_head_dim(const TensorRef& t, F&& f) {
  if (t.dtype == DType::bf16) with_head_dim_of<bf16_t>(t.dims[3], f);
  else with_head_dim_of<f16_t>(t.dims[3], f);
}

}  // namespace sinter::cuda::hopper
