// Turns a matmul KernelCall into what a BLAS wants. Used by both backends, so that they agree on what is allowed.
#pragma once
#include "core/attrs.h"
#include "core/kernel_call.h"

namespace sinter {

// One matrix operand in row-major terms: element (r, c) of the stored matrix is data[r * ld + c]; `transposed` says
// that the operand enters the product as its transpose.
struct MatmulOperand {
  char* data = nullptr;
  DType dtype = DType::f32;
  int64_t ld = 0;
  bool transposed = false;
  int64_t inner_stride = 0, outer_stride = 0;  // elements between batches
};

// c[o][i] (m×n) = a[o][i] (m×k) · b[o][i] (k×n) for o < outer, i < inner. Batches are split in two levels because the
// heads of a (B, T, H, D) tensor seen as (B, H, T, D) have no single stride.
struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0, inner = 1, outer = 1;
  MatmulOperand a, b, c;
};

// Note [Who multiplies]: on the CPU large GEMMs without batches go to a kernel of our own (Note [Packed products] in
// backend/cpu/packed_product.cpp), small and batched ones, and those in fp64, to OpenBLAS. This depends on the shape
// alone, so eager and compiled steps have the same bits, and the meta device knows the scratch memory. 16-bit operands
// are widened and then follow the same rule. Where OpenBLAS does not know the CPU and has chosen kernels for a much
// older one, small and batched GEMMs come to our kernel too (cpu::products() in backend/cpu/gemm.h). It works
// without scratch memory then, so a prediction need not know of it.

// With less than this neither kernel is clearly the faster one
// (docs/results/cpu-compiled/small_products_two_threads.txt).
[[gnu::always_inline]] constexpr bool is_packed(int64_t m, int64_t n, int64_t k) {
  return m >= 64 && n >= 64 && k >= 64 && m * n * k >= int64_t(1) << 22;
}
[[gnu::always_inline]] inline bool is_packed(const MatmulProblem& p) {
  return p.a.dtype != DType::f64 && p.outer * p.inner == 1 && is_packed(p.m, p.n, p.k);
}

// Of k, what is packed at once. Several rounds are added up in memory.
constexpr int64_t packed_round = 2048;
[[gnu::always_inline]] constexpr bool stores_packed_sums(int64_t k) { return k > packed_round; }

// The smaller operand, its rows or columns in panels of whole vectors: whatever the instruction set, a
// third more at most, and one panel.
[[gnu::always_inline]] constexpr int64_t packed_bytes(int64_t m, int64_t n, int64_t k) {
  int64_t across = m < n ? m : n;
  return 4 * (across + across / 3 + 32) * (k < packed_round ? k : packed_round);
}

namespace matmul_detail {

struct Matrix {
  int64_t rows, cols, row_stride, col_stride;
  int batch_rank;
  int64_t batch_dims[max_rank], batch_strides[max_rank];
};

// Folding joins the leading dimensions to the rows; the op's shape rule has checked that they can be joined.
inline Matrix matrix_of(const TensorRef& t, bool fold) {
  Matrix m{1, t.dims[t.rank - 1], 0, t.strides[t.rank - 1], 0, {}, {}};
  if (fold) {
    for (int d = 0; d + 1 < t.rank; ++d) m.rows *= t.dims[d];
    // The stride of the innermost row dimension longer than 1 is the row stride of the folded matrix.
    m.row_stride = m.cols;
    for (int d = t.rank - 2; d >= 0; --d)
      if (t.dims[d] != 1) {
        m.row_stride = t.strides[d];
        break;
      }
    return m;
  }
  m.rows = t.dims[t.rank - 2];
  m.row_stride = t.strides[t.rank - 2];
  for (int d = 0; d + 2 < t.rank; ++d) {
    if (t.dims[d] == 1) continue;
    m.batch_dims[m.batch_rank] = t.dims[d];
    m.batch_strides[m.batch_rank++] = t.strides[d];
  }
  return m;
}

// A stored matrix with contiguous rows, or the transpose of one.
inline MatmulOperand operand_of(const TensorRef& t, const Matrix& m, bool transpose) {
  bool row_major = m.col_stride == 1 || m.cols == 1;
  MatmulOperand o;
  o.data = static_cast<char*>(t.data);
  o.dtype = t.dtype;
  o.transposed = transpose != !row_major;
  int64_t ld = row_major ? m.row_stride : m.col_stride, least = row_major ? m.cols : m.rows;
  o.ld = ld > least ? ld : least;  // the stride of a dimension of length 1 means nothing
  return o;
}

// Merges batch dimensions into (outer, inner) common to all three operands; false when more than two levels are needed.
inline bool merge_batches(Matrix* (&ms)[3], MatmulOperand* (&os)[3], int64_t& outer, int64_t& inner) {
  Matrix& c = *ms[2];
  int levels = 0;
  int64_t dims[max_rank], strides[3][max_rank];
  for (int d = 0; d < c.batch_rank; ++d) {
    bool joins = levels > 0;
    for (int t = 0; t < 3 && joins; ++t)
      joins = strides[t][levels - 1] == c.batch_dims[d] * (ms[t]->batch_rank ? ms[t]->batch_strides[d] : 0);
    if (joins) dims[levels - 1] *= c.batch_dims[d];
    else dims[levels++] = c.batch_dims[d];
    for (int t = 0; t < 3; ++t) strides[t][levels - 1] = ms[t]->batch_rank ? ms[t]->batch_strides[d] : 0;
  }
  if (levels > 2) return false;
  inner = levels >= 1 ? dims[levels - 1] : 1;
  outer = levels == 2 ? dims[0] : 1;
  for (int t = 0; t < 3; ++t) {
    os[t]->inner_stride = levels >= 1 ? strides[t][levels - 1] : 0;
    os[t]->outer_stride = levels == 2 ? strides[t][0] : 0;
  }
  return true;
}

}  // namespace matmul_detail

// True when the operand can be handed to a BLAS as it lies (the op copies it otherwise): the rows of the matrix or of
// its transpose are contiguous and do not overlap, as those of an expanded tensor do.
inline bool matmul_operand_ok(const TensorRef& t, bool fold) {
  if (t.rank < 2) return false;
  auto m = matmul_detail::matrix_of(t, fold);
  bool by_rows = (m.col_stride == 1 || m.cols == 1) && (m.rows == 1 || m.row_stride >= m.cols);
  if (!fold) return by_rows || ((m.row_stride == 1 || m.rows == 1) && (m.cols == 1 || m.col_stride >= m.rows));
  int64_t expected = -1;
  for (int d = t.rank - 2; d >= 0; --d) {
    if (t.dims[d] == 1) continue;
    if (expected >= 0 && t.strides[d] != expected) return false;
    expected = t.strides[d] * t.dims[d];
  }
  return by_rows;
}

inline bool matmul_problem(const KernelCall& call, MatmulProblem& p) {
  using namespace matmul_detail;
  const auto& attrs = call.attrs.as<MatmulAttrs>();
  Matrix a = matrix_of(call.in[0], attrs.fold_a), b = matrix_of(call.in[1], attrs.fold_b);
  Matrix c = matrix_of(call.out[0], attrs.fold_a && !attrs.transpose_a);
  p.m = attrs.transpose_a ? a.cols : a.rows;
  p.k = attrs.transpose_a ? a.rows : a.cols;
  p.n = attrs.transpose_b ? b.rows : b.cols;
  p.a = operand_of(call.in[0], a, attrs.transpose_a);
  p.b = operand_of(call.in[1], b, attrs.transpose_b);
  p.c = operand_of(call.out[0], c, false);
  Matrix* ms[3] = {&a, &b, &c};
  MatmulOperand* os[3] = {&p.a, &p.b, &p.c};
  return merge_batches(ms, os, p.outer, p.inner);
}

}  // namespace sinter
