// Hopper's own instructions (sm_90a): bulk tensor copies (TMA), mbarriers, warpgroup products (wgmma),
// register hand-over. Thin wrappers, each one instruction. PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions", has the layouts.
//
// Note [Tiles in shared memory]: a tile of R rows × D 16-bit columns lies as panels of at most 64 columns, each
// [R][width] with rows of 32, 64 or 128 bytes, as TMA writes it: 16-byte pieces of a row are exchanged (swizzled) by
// the row's number so that a column of pieces hits all banks. The product's descriptors name the same swizzle. Read
// along its rows the tile is "K-major" (its columns are what is summed over); read across, "MN-major" (its rows are).
#pragma once
#include <cstdint>
#include <cuda.h>

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/hopper.h"

namespace sinter::cuda::hopper {

// Kernels that use these stand inside #ifdef __CUDA_ARCH_FEAT_SM90_ALL, which only the pass for sm_90a defines: in
// passes for other GPUs they are empty, and never called (can_run() in hopper.h).
__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Built with -DSINTER_INJECT_DELAYS, every meeting of threads comes early or late at
// random: what depends on luck shows.
__device__ __forceinline__ void perhaps_sleep() {
#ifdef SINTER_INJECT_DELAYS
  uint32_t clock, lane = threadIdx.x / 32 * 0x9e3779b9u + blockIdx.x * 0x85ebca6bu;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
  uint32_t x = (clock ^ lane) * 0xc2b2ae35u;
  if (x >> 29 == 0) __nanosleep(x >> 19 & 0x3ff);
#endif
}

// ---- mbarriers: count arrivals and bytes; waiters name the phase (0, 1, 0, …) whose completion they wait for ----

__device__ __forceinline__ void init_barrier(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// One thread of a warp arrives. The warp sleeps together, if at all: the product that follows wants all of it.
__device__ __forceinline__ void arrive_if(bool mine, uint64_t* b) {
  perhaps_sleep();
  if (mine) arrive(b);
}
__device__ __forceinline__ void arrive_expecting(uint64_t* b, uint32_t bytes) {
  perhaps_sleep();
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(uint64_t* b, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done:\n}" ::"r"(shared_address(b)),
      "r"(phase)
      : "memory");
  perhaps_sleep();
}

// ---- named barriers: some warps of the block ----

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  perhaps_sleep();
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_threads(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// What ordinary stores wrote becomes visible to TMA and wgmma; by every writer, before the barrier.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int N> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- TMA: one thread moves a box ----

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, uint64_t* full, int column, int row,
                                         int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(full)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* from, int column, int row, int head,
                                          int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
               : "memory");
}
__device__ __forceinline__ void load_bytes(void* to, const void* from, uint64_t* full, uint32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(full))
               : "memory");
}
__device__ __forceinline__ void add_floats(float* to, const float* from, uint32_t bytes) {  // to[i] += from[i], in L2
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_stores_read() {  // all but the last N groups have left shared memory
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- wgmma ----

__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving uses of an accumulator across a wait.
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// A matrix in shared memory: rows of RowBytes (32, 64 or 128, which is also the swizzle). Advancing it adds bytes / 16.
template <int RowBytes> __device__ __forceinline__ uint64_t matrix(const void* p, int panel_bytes = 16) {
  constexpr uint64_t swizzle = RowBytes == 128 ? 1 : RowBytes == 64 ? 2 : 3;
  return uint64_t((shared_address(p) & 0x3ffff) >> 4) | uint64_t(uint32_t(panel_bytes) >> 4) << 16 |
         uint64_t(8 * RowBytes >> 4) << 32 | swizzle << 62;
}

// d += a·b (or d = a·b when `add` is 0): 64 × N, summed over 16. across_a, across_b: the operand is read MN-major.
template <class T, int N> struct Wgmma;

// The names of accumulators, eight at a time, and the operands themselves.
#define SINTER_N0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define SINTER_N1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define SINTER_N2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define SINTER_N3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define SINTER_N4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define SINTER_N5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define SINTER_N6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define SINTER_N7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define SINTER_D8(i)                                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define SINTER_NAMES_16 SINTER_N0
#define SINTER_REGISTERS_16 SINTER_D8(0)
#define SINTER_NAMES_32 SINTER_N0 SINTER_N1
#define SINTER_REGISTERS_32 SINTER_D8(0), SINTER_D8(8)
#define SINTER_NAMES_64 SINTER_N0 SINTER_N1 SINTER_N2 SINTER_N3
#define SINTER_REGISTERS_64 SINTER_D8(0), SINTER_D8(8), SINTER_D8(16), SINTER_D8(24)
#define SINTER_NAMES_80 SINTER_N0 SINTER_N1 SINTER_N2 SINTER_N3 SINTER_N4
#define SINTER_REGISTERS_80 SINTER_D8(0), SINTER_D8(8), SINTER_D8(16), SINTER_D8(24), SINTER_D8(32)
#define SINTER_NAMES_96 SINTER_N0 SINTER_N1 SINTER_N2 SINTER_N3 SINTER_N4 SINTER_N5
#define SINTER_REGISTERS_96 SINTER_D8(0), SINTER_D8(8), SINTER_D8(16), SINTER_D8(24), SINTER_D8(32), SINTER_D8(40)
#define SINTER_NAMES_128 SINTER_N0 SINTER_N1 SINTER_N2 SINTER_N3 SINTER_N4 SINTER_N5 SINTER_N6 SINTER_N7
#define SINTER_REGISTERS_128 \
  SINTER_D8(0), SINTER_D8(8), SINTER_D8(16), SINTER_D8(24), SINTER_D8(32), SINTER_D8(40), SINTER_D8(48), SINTER_D8(56)

// a0 … p: the numbers of the operands after the accumulators.
#define SINTER_WGMMA(T, type, n, a0, a1, a2, a3, a4, a5, a6)                                                      \
  template <> struct Wgmma<T, n> {                                                                                \
    template <bool across_a, bool across_b>                                                                       \
    static __device__ __forceinline__ void shared(float (&d)[n / 2], uint64_t a, uint64_t b, int add) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #a2                                                       \
                   ", 0;\n"                                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" SINTER_NAMES_##n          \
                   "}, %" #a0 ", %" #a1 ", p, 1, 1, %" #a3 ", %" #a4 ";\n}"                                       \
                   : SINTER_REGISTERS_##n                                                                         \
                   : "l"(a), "l"(b), "r"(add), "n"(int(across_a)), "n"(int(across_b)));                           \
    }                                                                                                             \
    template <bool across_b>                                                                                      \
    static __device__ __forceinline__ void registers(float (&d)[n / 2], const uint32_t* a, uint64_t b, int add) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #a5                                                       \
                   ", 0;\n"                                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" SINTER_NAMES_##n          \
                   "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #a4 ", p, 1, 1, %" #a6 ";\n}"                    \
                   : SINTER_REGISTERS_##n                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(int(across_b)));           \
    }                                                                                                             \
  };
#define SINTER_WGMMA_TYPES(n, ...) \
  SINTER_WGMMA(bf16_t, "bf16", n, __VA_ARGS__) SINTER_WGMMA(f16_t, "f16", n, __VA_ARGS__)
SINTER_WGMMA_TYPES(16, 8, 9, 10, 11, 12, 13, 14)
SINTER_WGMMA_TYPES(32, 16, 17, 18, 19, 20, 21, 22)
SINTER_WGMMA_TYPES(64, 32, 33, 34, 35, 36, 37, 38)
SINTER_WGMMA_TYPES(80, 40, 41, 42, 43, 44, 45, 46)
SINTER_WGMMA_TYPES(96, 48, 49, 50, 51, 52, 53, 54)
SINTER_WGMMA_TYPES(128, 64, 65, 66, 67, 68, 69, 70)

// Where a thread's accumulators lie in a 64-row product: d[4j + 2r + c] is row row() + 8r, column 8j + column() + c.
struct Fragment {
  static __device__ __forceinline__ int row() { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ int column() { return threadIdx.x % 4 * 2; }
};

template <class T> __device__ __forceinline__ uint32_t pack_pair(float a, float b) {
  if constexpr (std::is_same_v<T, bf16_t>) return pack_bf16(a, b);
  else return pack_f16(a, b);
}
template <class T> __device__ __forceinline__ float2 unpack_pair(uint32_t u) {
  if constexpr (std::is_same_v<T, bf16_t>) return unpack_bf16(u);
  else return unpack_f16(u);
}

// Four 8 × 8 blocks of 16-bit values from the registers of a product (two adjacent columns each) to shared memory.
__device__ __forceinline__ void store_blocks(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void load_blocks(uint32_t address, uint32_t (&r)[4]) {  // back again
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The byte of (row, column) in a panel whose rows have RowBytes, as TMA swizzles it.
template <int RowBytes> __device__ __forceinline__ int swizzled(int row, int column_bytes) {
  int at = row * RowBytes + column_bytes;
  return RowBytes == 128 ? at ^ ((at >> 3) & 0x70) : RowBytes == 64 ? at ^ ((at >> 3) & 0x30) : at ^ ((at >> 3) & 0x10);
}

}  // namespace sinter::cuda::hopper
