// What the portable attention kernels share: fragments, products, tiles in shared memory, the order of blocks.
//
// Note [Fragments]: a warp multiplies 16×k by k×8 with mma.sync, where a step k is 32 bytes of a row: 16 elements of
// 16 bits, 8 of fp32. With g = lane / 4 and t = lane % 4, a lane holds of the 16×8 result (row g, columns 2t, 2t+1) and
// (row g+8, the same columns). In bytes, all types have the same fragments, so one ldmatrix reads any of them where the
// product runs along the rows of a tile. Two things differ:
// - A result becomes the left operand of the next product without leaving its lane. 16-bit: two neighbouring results
//   are the two halves of a step. fp32: the operand wants columns t and t+4 where the lane has 2t and 2t+1, so we let
//   slot t stand for column 2t and slot t+4 for 2t+1; a sum does not mind its order if both operands have the same.
// - A product down the columns of a tile: ldmatrix transposes 16-bit elements; fp32 elements are loaded one by
//   one, rows 2t and 2t+1 as above.
//
// Note [Rows in shared memory]: every row is followed by 16 unused bytes. Its length in 16-byte units is then odd, so
// that eight rows at one column, what ldmatrix reads, lie in different banks; so do rows 2t at columns g, what fp32
// reads. A swizzle would save those bytes and cost an instruction per address, where this has a constant offset.
//
// Note [fp32 products]: x = big + small, big = x rounded to tf32's 11 bits, and a·b ≈ small·big + big·small + big·big.
// The tensor core drops what it does not use of small, 2^-22 of x at most. It also truncates where it adds, and these
// errors have one sign, so a sum over thousands of keys is not left to it: each tile starts from zero and is added to
// the running sum in plain fp32.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string>

#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"

namespace sinter::cuda::portable {

enum class Math : uint8_t { bf16, f16, tf32, tf32x3 };

template <Math M>
using Element = std::conditional_t<M == Math::bf16, bf16_t, std::conditional_t<M == Math::f16, f16_t, float>>;
template <Math M> constexpr bool is_fp32 = M == Math::tf32 || M == Math::tf32x3;
template <Math M> constexpr int element_bytes = is_fp32<M> ? 4 : 2;
template <Math M> constexpr int step = 32 / element_bytes<M>;
template <Math M, int D> constexpr int row_bytes = D* element_bytes<M> + 16;
constexpr float infinity = __builtin_inff();

// ---- arguments ----

// The order in which blocks start: those with the most work first. All blocks of a head follow each other, so that they
// share its keys in the L2 cache. Where the whole grid is on the device at once (forward) nothing is left
// to balance the load later: rounds over the multiprocessors go forward and backward, so that one with a
// heavy block gets a light one too.
struct Order {
  int blocks = 1;  // per head
  int heads = 1;
  int multiprocessors = 1;
  bool descending = false;  // the last block has the most work
  bool balanced = false;

  __device__ void place(int index, int& block, int& head) const {
    if (balanced) {
      int round = index / multiprocessors, first = round * multiprocessors, slot = index - first;
      int size = min(multiprocessors, blocks * heads - first);
      if (round & 1) slot = size - 1 - slot;
      block = (first + slot) / heads, head = (first + slot) % heads;
    } else {
      head = index / blocks, block = index % blocks;
    }
    if (descending) block = blocks - 1 - block;
  }
};

// A (B, H, N, D) tensor; strides in elements.
struct Strided {
  void* data = nullptr;
  int64_t batch = 0, head = 0;
  int row = 0;
  template <class T> __device__ T* at(int b, int h) const { return static_cast<T*>(data) + b * batch + h * head; }
};

struct Arguments {
  Strided q, k, v, o, d_o, dq, dk, dv;
  Strided p, ds, stored_o;     // attention that stores its probabilities
  int strip = 0;               // rows for which p and ds are written as far as the last of them sees; 0: to the end
  bool p_pairs = false;        // rows of p and ds can be read and written in pairs
  bool p_vectors = false;      // … in 16-byte pieces
  float* logsumexp = nullptr;  // (B, H, queries), strides below
  int64_t l_batch = 0, l_head = 0, l_row = 1;
  float *l2 = nullptr, *delta = nullptr, *dq_sum = nullptr;  // workspace, rows of a head padded
  int padded_queries = 0;
  int queries = 0, keys = 0, dim = 0, heads = 0, kv_heads = 0, batches = 0;
  int offset = 0;    // query i sees keys j <= i + offset; without a mask the number of keys
  float factor = 0;  // scale · log2(e): exponentials are powers of two
  float scale = 0;
  uint32_t query_signs = ~0u;  // bits to flip in pairs of queries as they are loaded; 0: they count as zero, ~0: none
  bool vectors = false;        // every row of every operand can be read in 16-byte pieces
  bool paired = false;         // results can be written in pairs
  bool separate_dq = false;    // dq has a kernel of its own
  int stage = 0;               // rows of the streamed operands that are in shared memory at a time
  int buffers = 1;             // 2: the next stage (forward: of keys) is loaded while this one is used
  int halves = 1;              // forward: warps that share the same rows
  Order order;
};

// ---- instructions ----

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
template <class T> __device__ __forceinline__ void store_shared(uint32_t address, T x) {
  if constexpr (sizeof(T) == 4) store_shared(address, *reinterpret_cast<const uint32_t*>(&x));
  else asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(*reinterpret_cast<const uint16_t*>(&x)) : "memory");
}
// 16 bytes; zeros, and nothing is read, where they are not there.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool there) {
  asm volatile(
      "{\n\t"
      ".reg .pred absent;\n\t"
      "setp.eq.u32 absent, %2, 0;\n\t"
      "cp.async.cg.shared.global [%0], [%1], 16, absent;\n\t"
      "}" ::"r"(to),
      "l"(from), "r"(uint32_t(there))
      : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the latest groups of copies are here.
template <int Latest = 0> __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Latest) : "memory");
}
// Two warps hand over data: one arrives, the other waits for it; pair_idle where neither has any.
#ifdef SINTER_RACECHECK
// racecheck does not follow barriers of some warps: it then reports, across a later __syncthreads, what the partner
// (and no other warp) wrote. Built so, the whole block meets instead.
__device__ __forceinline__ void pair_arrive(int) { __syncthreads(); }
__device__ __forceinline__ void pair_wait(int) { __syncthreads(); }
__device__ __forceinline__ void pair_idle() { __syncthreads(); }
#else
__device__ __forceinline__ void pair_arrive(int id) { asm volatile("bar.arrive %0, 64;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void pair_wait(int id) { asm volatile("bar.sync %0, 64;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void pair_idle() {}
#endif

__device__ __forceinline__ void add_pair(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1,%2};" ::"l"(to), "f"(x), "f"(y) : "memory");
#else
  atomicAdd(to, x);
  atomicAdd(to + 1, y);
#endif
}

// c += a · b. Result and addend are separate operands of the instruction, so that a sum's first addend, zero, needs no
// registers.
#define SINTER_MMA(shape_and_types)                                                                    \
  asm("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};" \
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]))
template <Math M> __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  float d[4];
  if constexpr (M == Math::bf16) SINTER_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  else if constexpr (M == Math::f16) SINTER_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  else SINTER_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#pragma unroll
  for (int e = 0; e < 4; ++e) c[e] = d[e];
}
#undef SINTER_MMA

// ---- operands ----

// The left operand for 16 rows, or the right one for 16 columns (two results).
template <Math M> struct Operand { uint32_t big[4]; };
template <> struct Operand<Math::tf32x3> { uint32_t big[4], small[4]; };

template <Math M> __device__ __forceinline__ Operand<M> operand(const uint32_t (&raw)[4]) {
  Operand<M> x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (!is_fp32<M>) {
      x.big[i] = raw[i];
    } else {
      uint32_t rounded = raw[i] + 0x1000u;  // half of what tf32 drops; the tensor core ignores the rest
      if constexpr (M == Math::tf32x3) {
        x.big[i] = rounded & 0xffffe000u;
        x.small[i] = __float_as_uint(__uint_as_float(raw[i]) - __uint_as_float(x.big[i]));
      } else {
        x.big[i] = rounded;
      }
    }
  }
  return x;
}

template <Math M> __device__ __forceinline__ uint32_t pack(float a, float b) {
  return M == Math::bf16 ? pack_bf16(a, b) : pack_f16(a, b);
}

// Step kk of a left operand made of results.
template <Math M, int N> __device__ __forceinline__ Operand<M> operand_of(const float (&p)[N][4], int kk) {
  uint32_t raw[4];
  if constexpr (is_fp32<M>) {
    raw[0] = __float_as_uint(p[kk][0]), raw[1] = __float_as_uint(p[kk][2]);
    raw[2] = __float_as_uint(p[kk][1]), raw[3] = __float_as_uint(p[kk][3]);
  } else {
    raw[0] = pack<M>(p[2 * kk][0], p[2 * kk][1]), raw[1] = pack<M>(p[2 * kk][2], p[2 * kk][3]);
    raw[2] = pack<M>(p[2 * kk + 1][0], p[2 * kk + 1][1]), raw[3] = pack<M>(p[2 * kk + 1][2], p[2 * kk + 1][3]);
  }
  return operand<M>(raw);
}

// Where a lane points ldmatrix so that its four matrices are, in order:
// (rows 0-7, left), (8-15, left), (0-7, right), (8-15, right): a left operand along rows, a right one down columns;
__device__ __forceinline__ uint32_t rows_first(int lane, int row) { return lane % 16 * row + lane / 16 * 16; }
// (rows 0-7, left), (0-7, right), (8-15, left), (8-15, right): a right operand along rows, a left one down columns.
__device__ __forceinline__ uint32_t halves_first(int lane, int row) {
  return (lane % 8 + lane / 16 * 8) * row + lane / 8 % 2 * 16;
}
// A right operand down the columns of a tile.
template <Math M> __device__ __forceinline__ uint32_t columns_at(int lane, int row) {
  return is_fp32<M> ? lane % 4 * 2 * row + lane / 4 * 4 : rows_first(lane, row);
}
template <Math M> __device__ __forceinline__ void load_columns(uint32_t (&raw)[4], uint32_t address, int row) {
  if constexpr (is_fp32<M>) {
    raw[0] = load_shared(address), raw[1] = load_shared(address + row);
    raw[2] = load_shared(address + 32), raw[3] = load_shared(address + row + 32);
  } else {
    load_matrices_transposed(raw, address);
  }
}

// ---- products of a warp ----

// Columns of 16 multiplied together: with three products per result, enough of them are in flight.
template <Math M, int MF, int Pairs> constexpr int at_once = M == Math::tf32x3&& MF == 1 && Pairs % 2 == 0 ? 2 : 1;

// c[i][first + 2j + h] += a[i] · column h of b[j]
template <Math M, int MF, int N, int P>
__device__ __forceinline__ void multiply(float (&c)[MF][N][4], int first, const Operand<M> (&a)[MF],
                                         const Operand<M> (&b)[P]) {
#pragma unroll
  for (int term = M == Math::tf32x3 ? 0 : 2; term < 3; ++term) {
#pragma unroll
    for (int j = 0; j < P; ++j) {
#pragma unroll
      for (int i = 0; i < MF; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float(&to)[4] = c[i][first + 2 * j + h];
          if constexpr (M == Math::tf32x3) {
            if (term == 0) mma<M>(to, a[i].small, b[j].big[2 * h], b[j].big[2 * h + 1]);
            if (term == 1) mma<M>(to, a[i].big, b[j].small[2 * h], b[j].small[2 * h + 1]);
          }
          if (term == 2) mma<M>(to, a[i].big, b[j].big[2 * h], b[j].big[2 * h + 1]);
        }
      }
    }
  }
}

template <int MF, int N> __device__ __forceinline__ void clear(float (&c)[MF][N][4]) {
#pragma unroll
  for (int i = 0; i < MF; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][j][e] = 0.0f;
}

// c = left (16·MF rows) · right (8·N rows)ᵀ, both with D columns. left(kk, i): step kk of rows 16i to 16i + 15. right:
// the address of the tile, the lane's part (halves_first) included.
template <Math M, int D, int MF, int N, class Left>
__device__ __forceinline__ void product_of_rows(float (&c)[MF][N][4], Left&& left, uint32_t right) {
  constexpr int row = row_bytes<M, D>, P = at_once<M, MF, N / 2>;
  clear(c);
#pragma unroll
  for (int kk = 0; kk < D / step<M>; ++kk) {
    Operand<M> a[MF];
#pragma unroll
    for (int i = 0; i < MF; ++i) a[i] = left(kk, i);
#pragma unroll
    for (int j = 0; j < N / 2; j += P) {
      Operand<M> b[P];
#pragma unroll
      for (int k = 0; k < P; ++k) {
        uint32_t raw[4];
        load_matrices(raw, right + (j + k) * 16 * row + kk * 32);
        b[k] = operand<M>(raw);
      }
      multiply<M>(c, 2 * j, a, b);
    }
  }
}

// The same left operand read from a tile each time.
template <Math M, int D> struct LeftTile {
  uint32_t address;  // rows_first included
  __device__ __forceinline__ Operand<M> operator()(int kk, int i) const {
    uint32_t raw[4];
    load_matrices(raw, address + i * 16 * row_bytes<M, D> + kk * 32);
    return operand<M>(raw);
  }
};

// c += p · right, where p (results) has 8·N columns and right 8·N rows of D columns. right: the address of the tile,
// the lane's part (columns_at) included. Results of fp32 start from zero in groups of G; see Note [fp32 products].
template <Math M, int D, int G, int MF, int N>
__device__ __forceinline__ void product_of_columns(float (&c)[MF][D / 8][4], const float (&p)[MF][N][4],
                                                   uint32_t right) {
  constexpr int row = row_bytes<M, D>, steps = 8 * N / step<M>, group = M == Math::tf32x3 ? G : D / 8;
  constexpr int P = at_once<M, MF, group / 2>;
  static_assert(D / 8 % group == 0 && group % 2 == 0);
#pragma unroll
  for (int first = 0; first < D / 8; first += group) {
    auto sum = [&](float(&to)[MF][group][4]) {
#pragma unroll
      for (int kk = 0; kk < steps; ++kk) {
        Operand<M> a[MF];
#pragma unroll
        for (int i = 0; i < MF; ++i) a[i] = operand_of<M>(p[i], kk);
#pragma unroll
        for (int j = 0; j < group / 2; j += P) {
          Operand<M> b[P];
#pragma unroll
          for (int k = 0; k < P; ++k) {
            uint32_t raw[4];
            load_columns<M>(raw, right + kk * step<M> * row + (first / 2 + j + k) * 16 * element_bytes<M>, row);
            b[k] = operand<M>(raw);
          }
          multiply<M>(to, 2 * j, a, b);
        }
      }
    };
    if constexpr (M == Math::tf32x3) {
      float fresh[MF][group][4];
      clear(fresh);
      sum(fresh);
#pragma unroll
      for (int i = 0; i < MF; ++i)
#pragma unroll
        for (int j = 0; j < group; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) c[i][first + j][e] += fresh[i][j][e];
    } else {
      sum(c);
    }
  }
}

// ---- tiles ----

// The next `rows` rows of a tensor into a tile of D columns. Only `there` of them exist: what lies beyond, or beyond
// the head dimension, becomes zero and is not read.
template <Math M, int D>
__device__ __forceinline__ void fill(uint32_t tile, const Element<M>* from, int stride, int rows, int there,
                                     const Arguments& a, int thread, int threads) {
  constexpr int size = element_bytes<M>, per_chunk = 16 / size, chunks = D / per_chunk, row_size = row_bytes<M, D>;
  constexpr int across = chunks % 3 == 0 ? chunks / 3 : chunks;  // threads along a row: a power of two
  if (a.vectors) {
    const int row = thread / across, column = thread % across, rows_at_once = threads / across;
    const bool whole = rows % rows_at_once == 0;
    const int64_t advance = int64_t(rows_at_once) * stride;
    from += int64_t(row) * stride + column * per_chunk;
    tile += row * row_size + column * 16;
#pragma unroll
    for (int i = 0; i < rows; i += rows_at_once) {
      if (!whole && row + i >= rows) break;
#pragma unroll
      for (int j = 0; j < chunks / across; ++j)
        copy_async(tile + i * row_size + j * across * 16, from + j * across * per_chunk,
                   i < there - row && (column + j * across) * per_chunk < a.dim);
      from += advance;
    }
  } else {
#pragma unroll 1
    for (int i = thread; i < rows * D; i += threads) {
      const int row = i / D, column = i % D;
      store_shared(tile + row * row_size + column * size,
                   row < there && column < a.dim ? from[int64_t(row) * stride + column] : from_float<Element<M>>(0.0f));
    }
  }
}

// Columns 2t and 2t + 1 of a result, where they exist.
template <class T>
__device__ __forceinline__ void store_result(T* row, int column, float x, float y, const Arguments& a) {
  if (a.paired) {
    if (column < a.dim) {
      float v[2] = {x, y};
      store_pack(row + column, v);
    }
  } else {
    if (column < a.dim) row[column] = from_float<T>(x);
    if (column + 1 < a.dim) row[column + 1] = from_float<T>(y);
  }
}

// ---- host side ----

inline int64_t shared_memory_limit(const char* kernel) {
  int device = 0, limit = 0;
  check_cuda(cudaGetDevice(&device), kernel);
  check_cuda(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), kernel);
  // For tests: what a GPU with less would do.
  if (const char* cap = std::getenv("SINTER_SHARED_LIMIT")) limit = std::min(limit, std::atoi(cap));
  return limit;
}

template <class... P, class... A>
void launch_large(const char* name, void (*kernel)(P...), int64_t blocks, int threads, int64_t bytes,
                  cudaStream_t stream, A&&... args) {
  if (bytes > 48 * 1024)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)), name);
  kernel<<<grid_of(name, blocks), threads, size_t(bytes), stream>>>(P(args)...);
  check_cuda(cudaGetLastError(), name);
}

inline Strided strided(const char* kernel, const TensorRef& t) {
  int64_t row = t.dims[2] > 1 ? t.strides[2] : 0;
  if (row < 0 || row > INT_MAX) refuse(kernel, "rows more than 2^31 elements apart are not supported");
  return {t.data, t.strides[0], t.strides[1], int(row)};
}

// Every row starts at a multiple of 16 bytes and is one long.
inline bool whole_chunks(const TensorRef& t) {
  if (!aligned(t.data, 16) || t.dims[3] * size_of(t.dtype) % 16 != 0) return false;
  for (int i = 0; i < 3; ++i)
    if (t.dims[i] > 1 && t.strides[i] * size_of(t.dtype) % 16 != 0) return false;
  return true;
}
inline bool whole_pairs(const TensorRef& t) {
  if (t.dims[3] % 2 != 0 || !aligned(t.data, 2 * size_of(t.dtype))) return false;
  for (int i = 0; i < 3; ++i)
    if (t.dims[i] > 1 && t.strides[i] % 2 != 0) return false;
  return true;
}

// f(math, dim) with both as compile-time constants.
template <Math M, class F> void with_tile_dim(int64_t d, F&& f) {
  using MathConstant = std::integral_constant<Math, M>;
  if (d <= 16) return f(MathConstant{}, std::integral_constant<int, 16>{});
  if (d <= 32) return f(MathConstant{}, std::integral_constant<int, 32>{});
  if (d <= 64) return f(MathConstant{}, std::integral_constant<int, 64>{});
  if (d <= 96) return f(MathConstant{}, std::integral_constant<int, 96>{});
  return f(MathConstant{}, std::integral_constant<int, 128>{});
}

// Everything but the results and the tiling.
Arguments arguments_of(const char* kernel, const KernelCall& call);
// The order of `blocks` blocks per head; causal: they differ in work.
Order order_of(int64_t blocks, int heads, bool causal, bool descending);
[[noreturn]] void refuse_tile(const char* kernel, int tile, int64_t bytes, int64_t limit);

}  // namespace sinter::cuda::portable
