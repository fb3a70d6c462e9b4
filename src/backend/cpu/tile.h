// Products and transposes of tiles that lie in the cache.
//
// Note [Tile products]: attention multiplies many small matrices, some of them transposed. OpenBLAS packs both operands
// of every call, which is much of the work at these sizes. Here only the right operand has to lie in rows of whole
// vectors: c is computed four rows by a few vectors at a time in registers, and each element of a is read from where it
// lies, through two strides, and spread over a vector. So "transposed" is a matter of strides and nothing is packed. An
// element of c is always the same sum in the same order.
#pragma once
#include "backend/cpu/reduce.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

template <class A> struct VectorOf { typedef A Type [[gnu::vector_size(vector_bytes)]]; };
template <class A> using Vector = typename VectorOf<A>::Type;

template <class A> SINTER_INLINE Vector<A> load_vector(const A* p) {
  Vector<A> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
template <class A> SINTER_INLINE void store_vector(A* p, Vector<A> v) { __builtin_memcpy(p, &v, sizeof(v)); }

template <class A> SINTER_INLINE int64_t whole_vectors(int64_t n) { return (n + lanes<A> - 1) / lanes<A> * lanes<A>; }

// A matrix read element by element: (i, j) lies at data[i · row + j · col].
template <class A> struct Elements {
  const A* data;
  int64_t row, col;
};

// Registers for c: four rows of so many vectors leave room for a row of b, whatever the instruction set.
inline constexpr int tile_rows = 4, tile_vectors = vector_bytes == 64 ? 4 : 2;

template <int R, int C, class A>
SINTER_INLINE void multiply_in_registers(A* c, int64_t ldc, Elements<A> a, const A* b, int64_t ldb, int64_t k,
                                         bool accumulate) {
  Vector<A> sum[R][C] = {};
  if (accumulate) {
    const A* row = c;  // walked, not computed: sixteen addresses at once would not fit in registers
    for (int r = 0; r < R; ++r, row += ldc)
      for (int v = 0; v < C; ++v) sum[r][v] = load_vector(row + v * lanes<A>);
  }
  for (int64_t i = 0; i < k; ++i) {
    Vector<A> x[C];
    for (int v = 0; v < C; ++v) x[v] = load_vector(b + i * ldb + v * lanes<A>);
    for (int r = 0; r < R; ++r) {
      A y = a.data[r * a.row + i * a.col];
      for (int v = 0; v < C; ++v) sum[r][v] += y * x[v];
    }
  }
  for (int r = 0; r < R; ++r, c += ldc)
    for (int v = 0; v < C; ++v) store_vector(c + v * lanes<A>, sum[r][v]);
}

// Calls visit.operator()<C>(i) for vectors i, i + 1, … i + C − 1 of [begin, end), which are whole
// vectors, C at most tile_vectors.
template <class A, class F> SINTER_INLINE void for_each_vectors(int64_t begin, int64_t end, const F& visit) {
  int64_t i = begin;
  for (; i + tile_vectors * lanes<A> <= end; i += tile_vectors * lanes<A>) visit.template operator()<tile_vectors>(i);
  switch ((end - i) / lanes<A>) {
    case 3: return visit.template operator()<3>(i);
    case 2: return visit.template operator()<2>(i);
    case 1: return visit.template operator()<1>(i);
  }
}

template <int C, class A>
void multiply_columns(A* c, int64_t ldc, Elements<A> a, const A* b, int64_t ldb, int64_t m, int64_t k,
                      bool accumulate) {
  int64_t i = 0;
  for (; i + tile_rows <= m; i += tile_rows, a.data += tile_rows * a.row)
    multiply_in_registers<tile_rows, C>(c + i * ldc, ldc, a, b, ldb, k, accumulate);
  switch (m - i) {
    case 3: return multiply_in_registers<3, C>(c + i * ldc, ldc, a, b, ldb, k, accumulate);
    case 2: return multiply_in_registers<2, C>(c + i * ldc, ldc, a, b, ldb, k, accumulate);
    case 1: return multiply_in_registers<1, C>(c + i * ldc, ldc, a, b, ldb, k, accumulate);
  }
}

// c (m × n) = a (m × k) · b (k × n), or c += that. n is a multiple of the vector's length.
template <class A>
SINTER_INLINE void multiply(A* c, int64_t ldc, Elements<A> a, const A* b, int64_t ldb, int64_t m, int64_t n, int64_t k,
                            bool accumulate) {
  for_each_vectors<A>(0, n, [&]<int C>(int64_t j) SINTER_LAMBDA_INLINE {
    multiply_columns<C>(c + j, ldc, a, b + j, ldb, m, k, accumulate);
  });
}

// A square of vectors, transposed in registers: at each step lanes and rows that differ in one bit change places.
template <int W = 1, class A> SINTER_INLINE void transpose_registers(Vector<A> (&x)[lanes<A>]) {
  constexpr int L = int(lanes<A>);
  using Int = typename IntegerOf<A>::Type;
  if constexpr (W < L) {
    Vector<Int> low, high;
    for (int l = 0; l < L; ++l) low[l] = Int(l & W ? L + l - W : l), high[l] = Int(l & W ? L + l : l + W);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
      if (!(i & W)) {
        Vector<A> a = x[i], b = x[i + W];
        x[i] = __builtin_shuffle(a, b, low);
        x[i + W] = __builtin_shuffle(a, b, high);
      }
    transpose_registers<2 * W, A>(x);
  }
}

// to (cols × rows) = scale · from (rows × cols)ᵀ.
template <class A>
void transpose(A* to, int64_t to_ld, const A* from, int64_t from_ld, int64_t rows, int64_t cols, A scale) {
  constexpr int64_t L = lanes<A>;
  int64_t whole_rows = rows / L * L, whole_cols = cols / L * L;
  for (int64_t i = 0; i < whole_rows; i += L)
    for (int64_t j = 0; j < whole_cols; j += L) {
      Vector<A> x[L];
#pragma GCC unroll 16
      for (int64_t r = 0; r < L; ++r) x[r] = scale * load_vector(from + (i + r) * from_ld + j);
      transpose_registers<1, A>(x);
#pragma GCC unroll 16
      for (int64_t r = 0; r < L; ++r) store_vector(to + (j + r) * to_ld + i, x[r]);
    }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; ++j) to[j * to_ld + i] = scale * from[i * from_ld + j];
}

// 2^x for x below 127, less than 0 as a rule; 0 below 2^-126, as in fast_math.h. Half the price of exp_of: nothing is
// left to do for large arguments, and x less its nearest integer is exact. The polynomial is the minimax one on [−1/2,
// 1/2] for the relative error (2e-9), with 2^0 = 1.
SINTER_INLINE Vector<float> exp2_of(Vector<float> x) {
  constexpr float round = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, which then lies in the low bits
  Vector<float> shifted = x + round, r = x - (shifted - round);
  Vector<float> p = 0.000153458124f * r + 0.00133999309f;
  p = p * r + 0.00961848907f;
  p = p * r + 0.0555032864f;
  p = p * r + 0.240226462f;
  p = p * r + 0.693147182f;
  p = p * r + 1.0f;
  auto power = (__builtin_bit_cast(Vector<uint32_t>, shifted) << 23) + (127u << 23);
  p *= __builtin_bit_cast(Vector<float>, power);
  return x < -126.0f ? Vector<float>{} : p;
}
SINTER_INLINE Vector<double> exp2_of(Vector<double> x) {
  for (int64_t l = 0; l < lanes<double>; ++l) x[l] = __builtin_exp2(x[l]);
  return x;
}

}  // namespace
}  // namespace sinter::SINTER_CPU_ISA
