// Attention without the matrix of scores: Note [Online softmax]. Threads share out blocks of queries (forward, dq) or of
// keys (dk, dv); the small products inside a block are OpenBLAS's.
//
// Note [Online softmax]: a block of queries meets the keys block by block. It keeps, per row, the largest score so far m,
// the sum l of exp(s − m), and the output o scaled likewise. When a block brings a larger score, l and o are multiplied by
// exp(m − m') and go on from there, so each score is used once and never stored; at the end o / l is the output, and
// L = m + log l is all that backward needs to compute any probability again: p = exp(s − L).
//
// Backward, with D = rowsum(do ∘ o): dv = pᵀ·do, ds = p ∘ (do·vᵀ − D), dq = scale · ds·k, dk = scale · dsᵀ·q. It runs twice
// over the scores, once by blocks of keys for dk and dv and once by blocks of queries for dq (7 products instead of 5), so
// that no two threads ever add to the same place: the result does not depend on how many there are.
#include "backend/cpu/gemm.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t query_block = 64, key_block = 256;

struct Problem {
  int64_t B, H, Hkv, Nq, Nk, D;
  double scale;
  bool causal;
  int64_t offset;

  Problem(const KernelCall& call) {
    const TensorRef &q = call.in[0], &k = call.in[1];
    const auto& a = call.attrs.as<AttentionAttrs>();
    B = q.dims[0], H = q.dims[1], Hkv = k.dims[1], Nq = q.dims[2], Nk = k.dims[2], D = q.dims[3];
    scale = a.scale, causal = a.causal, offset = a.causal_offset;
  }
  // How many keys query i sees: the first so many.
  SINTER_INLINE int64_t sees(int64_t i) const { return causal ? max_of<int64_t>(0, min_of(Nk, i + offset + 1)) : Nk; }
  // The first query that sees key j.
  SINTER_INLINE int64_t first_query(int64_t j) const { return causal ? max_of<int64_t>(0, min_of(Nq, j - offset)) : 0; }
  int64_t query_blocks() const { return (Nq + query_block - 1) / query_block; }
  int64_t key_blocks() const { return (Nk + key_block - 1) / key_block; }
};

// Late blocks of queries see more keys than early ones: taken from both ends in turn, any stretch of them is fair.
SINTER_INLINE int64_t fair_order(int64_t i, int64_t n) { return i % 2 == 0 ? i / 2 : n - 1 - i / 2; }

// Rows of one head as a matrix of A: where they lie if they have the type, else converted.
template <class A> struct Tile {
  const A* data;
  int64_t ld;
};
SINTER_INLINE char* row_at(const TensorRef& t, int64_t b, int64_t h, int64_t i) {
  return static_cast<char*>(t.data) + (b * t.strides[0] + h * t.strides[1] + i * t.strides[2]) * size_of(t.dtype);
}
template <class A>
SINTER_INLINE Tile<A> tile_of(const TensorRef& t, int64_t b, int64_t h, int64_t first, int64_t rows, A* spare) {
  if (t.dtype == dtype_for<A>)
    return {reinterpret_cast<const A*>(row_at(t, b, h, first)), max_of(t.strides[2], t.dims[3])};
  for (int64_t i = 0; i < rows; ++i)
    load_strip(spare + i * t.dims[3], row_at(t, b, h, first + i), t.dtype, t.dims[3], 1);
  return {spare, t.dims[3]};
}
template <class A>
SINTER_INLINE void store_tile(const TensorRef& t, int64_t b, int64_t h, int64_t first, int64_t rows, const A* from) {
  for (int64_t i = 0; i < rows; ++i)
    store_strip(row_at(t, b, h, first + i), t.dtype, t.dims[3], 1, from + i * t.dims[3], false);
}

template <class A> SINTER_INLINE A stat_at(const TensorRef& t, int64_t b, int64_t h, int64_t i) {
  return *reinterpret_cast<const A*>(static_cast<char*>(t.data) +
                                     (b * t.strides[0] + h * t.strides[1] + i * t.strides[2]) * int64_t(sizeof(A)));
}

template <class A> void zero(A* p, int64_t n) { __builtin_memset(p, 0, size_t(n) * sizeof(A)); }

// p[j] = exp(s[j] − m) for the n columns that are seen, 0 for the others up to `all`.
template <class A> SINTER_INLINE void exp_row(A* p, int64_t n, int64_t all, A m) {
  int64_t padded = min_of(all, (n + lanes<A> - 1) / lanes<A> * lanes<A>);
#pragma omp simd
  for (int64_t j = 0; j < padded; ++j) p[j] = exp_of(p[j] - m);
  zero(p + n, all - n);
}

template <class A> void forward(const KernelCall& call) {
  Problem P(call);
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.out[0], &lse = call.out[1];
  int64_t blocks = P.query_blocks(), D = P.D;
  parallel_for(P.B * P.H * blocks, 1, [&](int64_t begin, int64_t end) {
    A* scratch = buffer<A>(0, query_block * (2 * D + key_block + 2) + 2 * key_block * D);
    A *tile_q = scratch, *out = tile_q + query_block * D, *s = out + query_block * D, *m = s + query_block * key_block,
      *l = m + query_block, *tile_k = l + query_block, *tile_v = tile_k + key_block * D;
    for (int64_t task = begin; task < end; ++task) {
      int64_t head = task / blocks, b = head / P.H, h = head % P.H, kv = h / (P.H / P.Hkv);
      int64_t q0 = fair_order(task % blocks, blocks) * query_block, rows = min_of(query_block, P.Nq - q0);
      Tile<A> Q = tile_of(q, b, h, q0, rows, tile_q);
      zero(out, rows * D);
      for (int64_t i = 0; i < rows; ++i) m[i] = -A(__builtin_inf()), l[i] = 0;
      for (int64_t k0 = 0, seen = P.sees(q0 + rows - 1); k0 < seen; k0 += key_block) {
        int64_t cols = min_of(key_block, seen - k0);
        Tile<A> K = tile_of(k, b, kv, k0, cols, tile_k), V = tile_of(v, b, kv, k0, cols, tile_v);
        cpu::multiply_tile(s, key_block, Q.data, Q.ld, false, K.data, K.ld, true, rows, cols, D, A(P.scale), false);
        for (int64_t i = 0; i < rows; ++i) {
          A* p = s + i * key_block;
          int64_t n = max_of<int64_t>(0, min_of(cols, P.sees(q0 + i) - k0));
          if (n == 0) {
            zero(p, cols);
            continue;
          }
          A larger = lane_max(
                n, [&](int64_t j) { return p[j]; }, m[i]),
            shrink = exp_of(m[i] - larger);
          exp_row(p, n, cols, larger);
          l[i] = l[i] * shrink + lane_sum<A>(n, [&](auto at) SINTER_LAMBDA_INLINE { return at(p); });
          m[i] = larger;
#pragma omp simd
          for (int64_t d = 0; d < D; ++d) out[i * D + d] *= shrink;
        }
        cpu::multiply_tile(out, D, s, key_block, false, V.data, V.ld, false, rows, D, cols, A(1), true);
      }
      for (int64_t i = 0; i < rows; ++i) {
        A factor = l[i] > 0 ? A(1) / l[i] : A(0);
#pragma omp simd
        for (int64_t d = 0; d < D; ++d) out[i * D + d] *= factor;
        A* L = reinterpret_cast<A*>(static_cast<char*>(lse.data)) + (b * P.H + h) * P.Nq + q0 + i;
        *L = l[i] > 0 ? m[i] + log_of(l[i]) : (l[i] == 0 ? -A(__builtin_inf()) : l[i]);
      }
      store_tile(o, b, h, q0, rows, out);
    }
  });
}

// What both halves of backward need of a block of queries.
template <class A> struct QueryBlock {
  Tile<A> q, grad;  // of the output
  A *lse, *delta;
};
template <class A>
SINTER_INLINE QueryBlock<A> open_queries(const KernelCall& call, int64_t b, int64_t h, int64_t first, int64_t rows,
                                         A* spare) {
  const TensorRef &q = call.in[0], &o = call.in[3], &lse = call.in[4], &grad = call.in[5];
  int64_t D = q.dims[3], n = query_block * D;
  A *delta = spare + 3 * n, *L = delta + query_block;
  QueryBlock<A> x{tile_of(q, b, h, first, rows, spare), tile_of(grad, b, h, first, rows, spare + n), L, delta};
  Tile<A> out = tile_of(o, b, h, first, rows, spare + 2 * n);
  for (int64_t i = 0; i < rows; ++i) {
    const A *po = out.data + i * out.ld, *pg = x.grad.data + i * x.grad.ld;
    delta[i] = lane_sum<A>(D, [&](auto at) SINTER_LAMBDA_INLINE { return at(po) * at(pg); });
    L[i] = stat_at<A>(lse, b, h, first + i);
  }
  return x;
}
constexpr int64_t query_space(int64_t D) { return query_block * (3 * D + 2); }

// p = probabilities and ds = p ∘ (do·vᵀ − D) · scale of a block of queries against a block of keys.
template <class A>
SINTER_INLINE void score_gradients(const Problem& P, const QueryBlock<A>& x, int64_t q0, int64_t rows, const Tile<A>& K,
                                   const Tile<A>& V, int64_t k0, int64_t cols, A* p, A* ds) {
  cpu::multiply_tile(p, key_block, x.q.data, x.q.ld, false, K.data, K.ld, true, rows, cols, P.D, A(P.scale), false);
  cpu::multiply_tile(ds, key_block, x.grad.data, x.grad.ld, false, V.data, V.ld, true, rows, cols, P.D, A(1), false);
  for (int64_t i = 0; i < rows; ++i) {
    A *pp = p + i * key_block, *pds = ds + i * key_block, delta = x.delta[i];
    int64_t n = max_of<int64_t>(0, min_of(cols, P.sees(q0 + i) - k0));
    if (n == 0) {
      zero(pp, cols), zero(pds, cols);
      continue;
    }
    exp_row(pp, n, cols, x.lse[i]);
    A scale = A(P.scale);
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) pds[j] = pp[j] * (pds[j] - delta) * scale;
  }
}

template <class A> void key_gradients(const KernelCall& call) {
  Problem P(call);
  const TensorRef &k = call.in[1], &v = call.in[2], &dk = call.out[1], &dv = call.out[2];
  int64_t blocks = P.key_blocks(), D = P.D, group = P.H / P.Hkv;
  parallel_for(P.B * P.Hkv * blocks, 1, [&](int64_t begin, int64_t end) {
    A* scratch = buffer<A>(0, 4 * key_block * D + 2 * query_block * key_block + query_space(D));
    A *tile_k = scratch, *tile_v = tile_k + key_block * D, *sum_k = tile_v + key_block * D,
      *sum_v = sum_k + key_block * D, *p = sum_v + key_block * D, *ds = p + query_block * key_block,
      *queries = ds + query_block * key_block;
    for (int64_t task = begin; task < end; ++task) {
      int64_t head = task / blocks, b = head / P.Hkv, kv = head % P.Hkv;
      int64_t k0 = fair_order(task % blocks, blocks) * key_block, cols = min_of(key_block, P.Nk - k0);
      Tile<A> K = tile_of(k, b, kv, k0, cols, tile_k), V = tile_of(v, b, kv, k0, cols, tile_v);
      zero(sum_k, cols * D), zero(sum_v, cols * D);
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
        for (int64_t q0 = P.first_query(k0) / query_block * query_block; q0 < P.Nq; q0 += query_block) {
          int64_t rows = min_of(query_block, P.Nq - q0);
          QueryBlock<A> x = open_queries(call, b, h, q0, rows, queries);
          score_gradients(P, x, q0, rows, K, V, k0, cols, p, ds);
          cpu::multiply_tile(sum_v, D, p, key_block, true, x.grad.data, x.grad.ld, false, cols, D, rows, A(1), true);
          cpu::multiply_tile(sum_k, D, ds, key_block, true, x.q.data, x.q.ld, false, cols, D, rows, A(1), true);
        }
      store_tile(dk, b, kv, k0, cols, sum_k);
      store_tile(dv, b, kv, k0, cols, sum_v);
    }
  });
}

template <class A> void query_gradients(const KernelCall& call) {
  Problem P(call);
  const TensorRef &k = call.in[1], &v = call.in[2], &dq = call.out[0];
  int64_t blocks = P.query_blocks(), D = P.D;
  parallel_for(P.B * P.H * blocks, 1, [&](int64_t begin, int64_t end) {
    A* scratch = buffer<A>(0, 2 * key_block * D + 2 * query_block * key_block + query_block * D + query_space(D));
    A *tile_k = scratch, *tile_v = tile_k + key_block * D, *p = tile_v + key_block * D,
      *ds = p + query_block * key_block, *sum_q = ds + query_block * key_block, *queries = sum_q + query_block * D;
    for (int64_t task = begin; task < end; ++task) {
      int64_t head = task / blocks, b = head / P.H, h = head % P.H, kv = h / (P.H / P.Hkv);
      int64_t q0 = fair_order(task % blocks, blocks) * query_block, rows = min_of(query_block, P.Nq - q0);
      QueryBlock<A> x = open_queries(call, b, h, q0, rows, queries);
      zero(sum_q, rows * D);
      for (int64_t k0 = 0, seen = P.sees(q0 + rows - 1); k0 < seen; k0 += key_block) {
        int64_t cols = min_of(key_block, seen - k0);
        Tile<A> K = tile_of(k, b, kv, k0, cols, tile_k), V = tile_of(v, b, kv, k0, cols, tile_v);
        score_gradients(P, x, q0, rows, K, V, k0, cols, p, ds);
        cpu::multiply_tile(sum_q, D, ds, key_block, false, K.data, K.ld, false, rows, D, cols, A(1), true);
      }
      store_tile(dq, b, h, q0, rows, sum_q);
    }
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void attention(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void attention_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() {
    key_gradients<A>(call);
    query_gradients<A>(call);
  });
}

}  // namespace sinter::SINTER_CPU_ISA
