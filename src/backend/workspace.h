// How much scratch memory each kernel is handed. Fixed rules (never a library's answer), because the meta device must
// predict the same bytes without a GPU.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "backend/matmul_problem.h"
#include "core/attrs.h"
#include "core/device.h"
#include "core/folded_update.h"
#include "core/kernel_call.h"

namespace sinter::workspace {

inline int64_t last_dim(const TensorRef& t) { return t.dims[t.rank - 1]; }
inline int64_t rows(const TensorRef& t) { return numel(t) / std::max<int64_t>(1, last_dim(t)); }

// 16-bit tensors that the CPU multiplies as fp32.
inline int64_t widened(std::initializer_list<TensorRef> tensors) {
  int64_t bytes = 0;
  for (const TensorRef& t : tensors) bytes += is_16bit(t.dtype) ? 4 * numel(t) : 0;
  return bytes;
}

// cuBLASLt gets what NVIDIA recommends for Hopper; the CPU what is packed or widened (Note [Who
// multiplies] in backend/matmul_problem.h).
inline int64_t matmul(const KernelCall& c, DeviceType device) {
  if (device == DeviceType::cuda) return int64_t(32) << 20;
  MatmulProblem p;
  int64_t packed = matmul_problem(c, p) && is_packed(p) ? packed_bytes(p.m, p.n, p.k) : 0;
  return packed + widened({c.in[0], c.in[1], c.out[0]});
}

// The gradient, and what its GEMM needs. On CUDA it never leaves the multiprocessor, and of a GEMM whose tiles
// are updated as they are computed only several rounds must be added up in memory.
inline int64_t adamw_product(const KernelCall& c, DeviceType device) {
  if (device == DeviceType::cuda) return 0;
  int64_t most = 0;
  for (int i = 0; i < folded_weights(c); ++i) {
    const TensorRef &dy = c.in[folded_input(i, folded_dy)], &x = c.in[folded_input(i, folded_x)],
                    &master = c.in[folded_input(i, folded_master)];
    int64_t m = last_dim(dy), n = last_dim(x), k = rows(x);
    bool packed = dy.dtype != DType::f64 && is_packed(m, n, k);
    bool updates_tiles = packed && dy.dtype == DType::f32 && !has_copy(c, i);
    int64_t gradient = updates_tiles && !stores_packed_sums(k) ? 0 : numel(master) * size_of(master.dtype);
    most = std::max(most, gradient + (packed ? packed_bytes(m, n, k) : 0) + widened({dy, x}));
  }
  return most;
}

// Weight gradients of norms: rows are summed in this many groups, then the groups in order. A fixed number, so that
// the result does not depend on the machine.
constexpr int64_t norm_groups = 256;
inline int64_t norm_backward(const KernelCall& c, DeviceType) {
  int64_t sums = c.n_out - 1;  // dw, or dw and db
  return sums * std::min(rows(c.in[0]), norm_groups) * last_dim(c.in[0]) * (c.in[0].dtype == DType::f64 ? 8 : 4);
}

// embedding_backward on CUDA: for each stretch of so many tokens a bit for each id; where there are
// few or very many stretches, none.
constexpr int64_t embedding_stretch = 2048;
inline int64_t embedding_backward(const KernelCall& c, DeviceType device) {
  int64_t stretches = (numel(c.in[0]) + embedding_stretch - 1) / embedding_stretch;
  if (device != DeviceType::cuda || stretches < 3 || stretches > 256) return 0;
  return stretches * ((c.out[0].dims[0] + 31) / 32) * 4;
}

// attention on CUDA: the counter that hands out work.
inline int64_t attention(const KernelCall&, DeviceType device) { return device == DeviceType::cuda ? 512 : 0; }
// attention_backward on CUDA: per row of queries the statistics L and D, then dq summed in fp32, then a
// counter per 64 rows (which orders the sums when they must be the same every time). Rows and the head
// dimension are padded to whole tiles.
constexpr int64_t attention_rows = 128;
inline int64_t padded_queries(int64_t n) { return (n + attention_rows - 1) / attention_rows * attention_rows; }
inline int64_t padded_head_dim(int64_t d) { return d <= 16 ? 16 : d <= 32 ? 32 : d <= 64 ? 64 : d <= 96 ? 96 : 128; }
// On the CPU: dk and dv summed in so many parts, one per task that works on the queries of a key/value head, in fp32
// (fp64 for f64), with D in whole vectors of 64 bytes. Enough parts to make 8 tasks of the pairs of a sequence and a
// key/value head, each worth 128 queries at least.
[[gnu::always_inline]] constexpr int64_t attention_splits(int64_t pairs, int64_t queries) {
  int64_t wanted = pairs >= 8 ? 1 : (8 + pairs - 1) / (pairs < 1 ? 1 : pairs), most = (queries + 127) / 128;
  return wanted < most ? wanted : most < 1 ? 1 : most;
}
inline int64_t attention_backward(const KernelCall& c, DeviceType device) {
  if (device != DeviceType::cuda) {
    if (c.attrs.as<AttentionAttrs>().kernel == AttentionKernel::tiled) return 0;
    const TensorRef &q = c.in[0], &k = c.in[1];
    int64_t pairs = k.dims[0] * k.dims[1], queries = k.dims[1] ? q.dims[1] / k.dims[1] * q.dims[2] : 0;
    int64_t row_bytes = (q.dims[3] * (q.dtype == DType::f64 ? 8 : 4) + 63) / 64 * 64;
    return attention_splits(pairs, queries) * 2 * pairs * k.dims[2] * row_bytes;
  }
  int64_t rows = c.in[0].dims[0] * c.in[0].dims[1] * padded_queries(c.in[0].dims[2]);
  return rows * (2 + padded_head_dim(c.in[0].dims[3])) * 4 + rows / 64 * 4;
}

inline int64_t cross_entropy(const KernelCall& c, DeviceType) { return 8 * c.in[0].dims[0]; }  // a loss per row

constexpr int64_t partial_sums = 2048;  // of a full reduction, fp64 each
inline int64_t full_reduction(const KernelCall&, DeviceType) { return 8 * partial_sums; }

}  // namespace sinter::workspace
