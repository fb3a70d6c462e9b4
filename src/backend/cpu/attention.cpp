// Attention without the matrix of scores: Note [Online softmax]. Everything is held transposed, with the queries of a
// block side by side in vectors (Note [Queries in lanes]).
//
// Note [Online softmax]: a block of queries meets the keys block by block. It keeps, per query, the largest score so
// far m, the sum l of exp(s − m), and the output o scaled likewise. When a block brings a larger score, l and o are
// multiplied by exp(m − m') and go on from there, so each score is used once and never stored; at the end o / l is the
// output, and L = m + log l is all that backward needs to compute any probability again: p = exp(s − L).
//
// Note [Queries in lanes]: sᵀ = k·qᵀ has a row per key and a column per query. Then maxima and sums over keys are plain
// vector operations, m, l, L and D are vectors, a causal mask is a prefix of each row, and of all operands only the
// block of queries ever has to be transposed: keys and values are read where they lie (Note [Tile products] in tile.h).
// The block of queries also carries the factor scale · log2 e, so that every exponential is a power of two.
//
// Backward, with D = rowsum(do ∘ o): dv = pᵀ·do, ds = p ∘ (do·vᵀ − D), dq = scale · ds·k, dk = scale · dsᵀ·q: five
// products. A task owns some blocks of queries, and their dq; what it adds to dk and dv goes to sums of its own in the
// workspace, and the sums are added in order at the end. How many there are follows from the shape
// (workspace::attention_splits), so the result does not depend on the number of threads.
#include "backend/cpu/attention_shape.h"
#include "backend/cpu/tile.h"
#include "backend/workspace.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t most_queries = 64;  // of a block: as many columns as a register tile has, or a multiple
constexpr int64_t key_block = 128;    // what every query of the block sees
constexpr int64_t masked_keys = 16;   // what only some see: smaller, so that less is computed in vain

template <class A> constexpr A log2_e = A(1.44269504088896340736);

template <class A> struct Problem : AttentionShape {
  A scale;
  int64_t width;   // queries of a block, whole vectors
  int64_t blocks;  // of queries
  int64_t padded;  // D in whole vectors

  explicit Problem(const KernelCall& call) : AttentionShape(call), scale(A(call.attrs.as<AttentionAttrs>().scale)) {
    width = min_of(most_queries, whole_vectors<A>(max_of<int64_t>(Nq, 1)));
    blocks = (Nq + width - 1) / width;
    padded = whole_vectors<A>(max_of<int64_t>(D, 1));
  }

  // Cuts the keys that some of the queries see into blocks: visit(first key, keys, first column, masked).
  // Columns before the first see none of the block's keys.
  template <class F> SINTER_INLINE void for_each_key_block(int64_t q0, int64_t rows, const F& visit) const {
    int64_t seen = sees(q0 + rows - 1);
    int64_t by_all = causal ? min_of(seen, sees(q0) / masked_keys * masked_keys) : seen;
    for (int64_t k0 = 0, keys; k0 < seen; k0 += keys) {
      bool masked = k0 >= by_all;
      keys = masked ? min_of(masked_keys, seen - k0) : min_of(key_block, by_all - k0);
      int64_t column = masked ? max_of<int64_t>(0, k0 - offset - q0) / lanes<A> * lanes<A> : 0;
      visit(k0, keys, column, masked);
    }
  }

  // Scores that the mask hides become −inf: of each key, those of the first queries.
  SINTER_INLINE void mask(A* s, int64_t q0, int64_t k0, int64_t keys, int64_t column) const {
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t i = column, end = min_of(width, k0 + j - offset - q0); i < end; ++i)
        s[j * width + i] = -A(__builtin_inf());
  }
};

// Rows of one head as a matrix of A: where they lie if they have the type, else converted.
template <class A> struct Tile {
  const A* data;
  int64_t ld;

  SINTER_INLINE Elements<A> rows() const { return {data, ld, 1}; }
  SINTER_INLINE Elements<A> columns() const { return {data, 1, ld}; }
};
template <class A>
SINTER_INLINE Tile<A> tile_of(const TensorRef& t, int64_t b, int64_t h, int64_t first, int64_t rows, A* spare) {
  if (t.dtype == dtype_for<A>) return {reinterpret_cast<const A*>(row_at(t, b, h, first)), t.strides[2]};
  int64_t D = t.dims[3], together = t.strides[2] == D ? rows : 1;  // rows without gaps are converted as one
  for (int64_t i = 0; i < rows; i += together)
    load_strip(spare + i * D, row_at(t, b, h, first + i), t.dtype, together * D, 1);
  return {spare, D};
}
template <class A> SINTER_INLINE void zero(A* p, int64_t n) { __builtin_memset(p, 0, size_t(n) * sizeof(A)); }
template <class A> SINTER_INLINE void fill(A* p, int64_t n, A value) {
  for (int64_t i = 0; i < n; ++i) p[i] = value;
}

// Parts of a thread's buffer, one after the other.
template <class A> struct Parts {
  A* next;
  SINTER_INLINE A* take(int64_t n) {
    A* p = next;
    next += whole_vectors<A>(n);
    return p;
  }
};

// to (D × width) = scale · rowsᵀ, with zeros for queries that are not there.
template <class A>
SINTER_INLINE void queries_in_lanes(A* to, const Problem<A>& P, const Tile<A>& from, int64_t rows, A scale) {
  if (rows < P.width) zero(to, P.D * P.width);
  transpose(to, P.width, from.data, from.ld, rows, P.D, scale);
}

// Rows of t = scale · fromᵀ, where from is (D × width).
template <class A>
SINTER_INLINE void store_queries(const TensorRef& t, const Problem<A>& P, int64_t b, int64_t h, int64_t q0,
                                 int64_t rows, const A* from, A scale, A* spare) {
  if (t.dtype == dtype_for<A>)
    return transpose(reinterpret_cast<A*>(row_at(t, b, h, q0)), t.strides[2], from, P.width, P.D, rows, scale);
  transpose(spare, P.D, from, P.width, P.D, rows, scale);
  for (int64_t i = 0; i < rows; ++i) store_strip(row_at(t, b, h, q0 + i), t.dtype, P.D, 1, spare + i * P.D, false);
}

// One step of the online softmax on the columns [column, width): s becomes 2^(s − m), and m, l and out follow.
template <class A>
SINTER_INLINE void softmax_step(const Problem<A>& P, A* s, int64_t keys, int64_t column, A* m, A* l, A* out) {
  constexpr int64_t L = lanes<A>;
  for_each_vectors<A>(column, P.width, [&]<int C>(int64_t i) SINTER_LAMBDA_INLINE {
    Vector<A> most[C], sum[C], shrink[C];
    for (int v = 0; v < C; ++v) most[v] = load_vector(m + i + v * L);
    for (int64_t j = 0; j < keys; ++j)
      for (int v = 0; v < C; ++v) {
        Vector<A> x = load_vector(s + j * P.width + i + v * L);
        most[v] = most[v] < x ? x : most[v];
      }
    for (int v = 0; v < C; ++v) {
      shrink[v] = exp2_of(load_vector(m + i + v * L) - most[v]);
      sum[v] = load_vector(l + i + v * L) * shrink[v];
      store_vector(m + i + v * L, most[v]);
    }
    for (int64_t j = 0; j < keys; ++j)
      for (int v = 0; v < C; ++v) {
        A* at = s + j * P.width + i + v * L;
        Vector<A> p = exp2_of(load_vector(at) - most[v]);
        sum[v] += p;
        store_vector(at, p);
      }
    for (int v = 0; v < C; ++v) store_vector(l + i + v * L, sum[v]);
    for (int64_t d = 0; d < P.D; ++d)
      for (int v = 0; v < C; ++v) {
        A* at = out + d * P.width + i + v * L;
        store_vector(at, load_vector(at) * shrink[v]);
      }
  });
}

template <class A> void forward(const KernelCall& call) {
  Problem<A> P(call);
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.out[0], &lse = call.out[1];
  int64_t heads = P.B * P.H, D = P.D, W = P.width;
  constexpr A lowest = sizeof(A) == 4 ? A(-__FLT_MAX__) : A(-__DBL_MAX__);  // not −inf: differences must exist
  parallel_for(heads * P.blocks, 1, [&](int64_t begin, int64_t end) {
    Parts<A> parts{buffer<A>(0, 3 * W * P.padded + key_block * W + 2 * W + 2 * key_block * P.padded)};
    A *qt = parts.take(D * W), *out = parts.take(D * W), *rows_of_block = parts.take(W * D),
      *s = parts.take(key_block * W), *m = parts.take(W), *l = parts.take(W), *tile_k = parts.take(key_block * D),
      *tile_v = parts.take(key_block * D);
    for (int64_t task = begin; task < end; ++task) {
      // Late blocks see the most keys: they go first, so that no long one is left for the end.
      int64_t head = task % heads, b = head / P.H, h = head % P.H, kv = h / P.group;
      int64_t q0 = (P.blocks - 1 - task / heads) * W, rows = min_of(W, P.Nq - q0);
      queries_in_lanes(qt, P, tile_of(q, b, h, q0, rows, rows_of_block), rows, P.scale * log2_e<A>);
      zero(out, D * W), zero(l, W), fill(m, W, lowest);
      P.for_each_key_block(q0, rows, [&](int64_t k0, int64_t keys, int64_t column, bool masked) {
        Tile<A> K = tile_of(k, b, kv, k0, keys, tile_k), V = tile_of(v, b, kv, k0, keys, tile_v);
        multiply(s + column, W, K.rows(), qt + column, W, keys, W - column, D, false);
        if (masked) P.mask(s, q0, k0, keys, column);
        softmax_step(P, s, keys, column, m, l, out);
        multiply(out + column, W, V.columns(), s + column, W, D, W - column, keys, true);
      });
      for (int64_t i = 0; i < rows; ++i)
        stat_at<A>(lse, b, h, q0 + i) = l[i] == 0 ? -A(__builtin_inf()) : m[i] / log2_e<A> + log_of(l[i]);
      for (int64_t i = 0; i < W; ++i) l[i] = l[i] == 0 ? A(0) : A(1) / l[i];
      for (int64_t d = 0; d < D; ++d)
#pragma omp simd
        for (int64_t i = 0; i < W; ++i) out[d * W + i] *= l[i];
      store_queries(o, P, b, h, q0, rows, out, A(1), rows_of_block);
    }
  });
}

// Rows of the block as the right operand of a product: in panels as wide as a register tile, one after the other,
// because rows that lie a power of two apart compete for the same few places of the L1 cache.
constexpr int64_t panel_bytes = tile_vectors * vector_bytes;
template <class A> constexpr int64_t panel = panel_bytes / int64_t(sizeof(A));

template <class A> SINTER_INLINE void rows_in_panels(A* to, const Problem<A>& P, const Tile<A>& from, int64_t rows) {
  for (int64_t first = 0; first < P.padded; first += panel<A>, to += rows * panel<A>)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t d = 0, n = min_of(panel<A>, P.padded - first), there = min_of(n, P.D - first); d < n; d += lanes<A>)
        if (d + lanes<A> <= there)
          store_vector(to + i * panel<A> + d, load_vector(from.data + i * from.ld + first + d));
        else
          for (int64_t e = d; e < d + lanes<A>; ++e)
            to[i * panel<A> + e] = e < there ? from.data[i * from.ld + first + e] : A(0);
}

// sum (keys × D) = left · rows, or += that; the first `skipped` rows do not count.
template <class A>
SINTER_INLINE void product_with(A* sum, const Problem<A>& P, Elements<A> left, const A* panels, int64_t keys,
                                int64_t rows, int64_t skipped, bool accumulate) {
  for (int64_t first = 0; first < P.padded; first += panel<A>, panels += rows * panel<A>)
    multiply(sum + first, P.padded, left, panels + skipped * panel<A>, panel<A>, keys,
             min_of(panel<A>, P.padded - first), rows - skipped, accumulate);
}

// What backward needs of a block of queries.
template <class A> struct QueryBlock {
  A *q, *grad;     // of the output, in panels
  A *qt, *grad_t;  // the same in lanes, q scaled
  A *lse, *delta;  // L · log2 e, and D
  A *spare, *spare_out;

  QueryBlock(const Problem<A>& P, Parts<A>& parts)
      : q(parts.take(P.width * panels(P))),
        grad(parts.take(P.width * panels(P))),
        qt(parts.take(P.width * P.padded)),
        grad_t(parts.take(P.width * P.padded)),
        lse(parts.take(P.width)),
        delta(parts.take(P.width)),
        spare(parts.take(P.width * P.padded)),
        spare_out(parts.take(P.width * P.padded)) {}
  static int64_t panels(const Problem<A>& P) { return (P.padded + panel<A> - 1) / panel<A> * panel<A>; }
  static int64_t space(const Problem<A>& P) { return P.width * (2 * panels(P) + 4 * P.padded + 2); }

  SINTER_INLINE void open(const KernelCall& call, const Problem<A>& P, int64_t b, int64_t h, int64_t q0, int64_t rows) {
    const TensorRef& stats = call.in[4];
    Tile<A> out = tile_of(call.in[3], b, h, q0, rows, spare_out), dout = tile_of(call.in[5], b, h, q0, rows, spare);
    for (int64_t i = 0; i < P.width; ++i) {
      const A *po = out.data + i * out.ld, *pg = dout.data + i * dout.ld;
      delta[i] = i < rows ? lane_sum<A>(P.D, [&](auto at) SINTER_LAMBDA_INLINE { return at(po) * at(pg); }) : A(0);
      lse[i] = i < rows ? stat_at<A>(stats, b, h, q0 + i) * log2_e<A> : A(0);
      if (lse[i] == -A(__builtin_inf())) lse[i] = 0;  // it sees nothing: every score is −inf, and −inf − L must exist
    }
    rows_in_panels(grad, P, dout, rows);
    queries_in_lanes(grad_t, P, dout, rows, A(1));
    Tile<A> in = tile_of(call.in[0], b, h, q0, rows, spare);
    rows_in_panels(q, P, in, rows);
    queries_in_lanes(qt, P, in, rows, P.scale * log2_e<A>);
  }
};

// s becomes p = 2^(s − L), dp becomes ds / scale = p ∘ (dp − D).
template <class A>
SINTER_INLINE void score_gradients(const Problem<A>& P, const QueryBlock<A>& x, int64_t keys, int64_t column, A* s,
                                   A* dp) {
  constexpr int64_t L = lanes<A>;
  for_each_vectors<A>(column, P.width, [&]<int C>(int64_t i) SINTER_LAMBDA_INLINE {
    Vector<A> lse[C], delta[C];
    for (int v = 0; v < C; ++v) lse[v] = load_vector(x.lse + i + v * L), delta[v] = load_vector(x.delta + i + v * L);
    for (int64_t j = 0; j < keys; ++j)
      for (int v = 0; v < C; ++v) {
        int64_t at = j * P.width + i + v * L;
        Vector<A> p = exp2_of(load_vector(s + at) - lse[v]);
        store_vector(s + at, p);
        store_vector(dp + at, p * (load_vector(dp + at) - delta[v]));
      }
  });
}

template <class A> void backward(const KernelCall& call) {
  Problem<A> P(call);
  const TensorRef &k = call.in[1], &v = call.in[2], &dq = call.out[0], &dk = call.out[1], &dv = call.out[2];
  int64_t D = P.D, W = P.width, pairs = P.B * P.Hkv, items = P.group * P.blocks;
  int64_t splits = workspace::attention_splits(pairs, P.group * P.Nq), size = P.Nk * P.padded;
  A* sums = static_cast<A*>(call.workspace);  // (splits, B, Hkv): dk / scale, then dv, each (Nk, D in whole vectors)
  parallel_for(pairs * splits, 1, [&](int64_t begin, int64_t end) {
    Parts<A> parts{buffer<A>(0, QueryBlock<A>::space(P) + W * P.padded + 2 * key_block * (W + P.padded))};
    QueryBlock<A> x(P, parts);
    A *dqt = parts.take(D * W), *s = parts.take(key_block * W), *dp = parts.take(key_block * W),
      *tile_k = parts.take(key_block * D), *tile_v = parts.take(key_block * D);
    for (int64_t task = begin; task < end; ++task) {
      int64_t split = task / pairs, pair = task % pairs, b = pair / P.Hkv, kv = pair % P.Hkv;
      A *sum_k = sums + 2 * task * size, *sum_v = sum_k + size;
      // Blocks are dealt out in turn, the late ones first, because they see the most keys. So the first of them sees
      // what the others see: it writes the sums and they add to them.
      int64_t seen = split < items ? P.sees(min_of(P.Nq, (P.blocks - split / P.group) * W) - 1) : 0;
      zero(sum_k + seen * P.padded, (P.Nk - seen) * P.padded);
      zero(sum_v + seen * P.padded, (P.Nk - seen) * P.padded);
      for (int64_t item = split; item < items; item += splits) {
        int64_t h = kv * P.group + item % P.group, q0 = (P.blocks - 1 - item / P.group) * W,
                rows = min_of(W, P.Nq - q0);
        x.open(call, P, b, h, q0, rows);
        zero(dqt, D * W);
        P.for_each_key_block(q0, rows, [&](int64_t k0, int64_t keys, int64_t column, bool masked) {
          Tile<A> K = tile_of(k, b, kv, k0, keys, tile_k), V = tile_of(v, b, kv, k0, keys, tile_v);
          multiply(s + column, W, K.rows(), x.qt + column, W, keys, W - column, D, false);
          multiply(dp + column, W, V.rows(), x.grad_t + column, W, keys, W - column, D, false);
          if (masked) P.mask(s, q0, k0, keys, column);
          score_gradients(P, x, keys, column, s, dp);
          product_with(sum_v + k0 * P.padded, P, {s + column, W, 1}, x.grad, keys, rows, column, item != split);
          product_with(sum_k + k0 * P.padded, P, {dp + column, W, 1}, x.q, keys, rows, column, item != split);
          multiply(dqt + column, W, K.columns(), dp + column, W, D, W - column, keys, true);
        });
        store_queries(dq, P, b, h, q0, rows, dqt, P.scale, x.spare);
      }
    }
  });
  parallel_for(pairs * P.Nk, rows_per_range(2 * D * splits), [&](int64_t begin, int64_t end) {
    A* spare = buffer<A>(0, D);
    for (int64_t r = begin; r < end; ++r)
      for (int64_t which = 0; which < 2; ++which) {
        int64_t pair = r / P.Nk, i = r % P.Nk;
        const TensorRef& to = which == 0 ? dk : dv;
        A scale = which == 0 ? P.scale : A(1);
        char* at = row_at(to, pair / P.Hkv, pair % P.Hkv, i);
        A* row = to.dtype == dtype_for<A> ? reinterpret_cast<A*>(at) : spare;
        for (int64_t split = 0; split < splits; ++split) {
          const A* part = sums + (2 * (split * pairs + pair) + which) * size + i * P.padded;
#pragma omp simd
          for (int64_t d = 0; d < D; ++d) row[d] = scale * part[d] + (split ? row[d] : A(0));
        }
        if (row == spare) store_strip(at, to.dtype, D, 1, spare, false);
      }
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

bool wants_tiled(const KernelCall& call) {
  AttentionKernel kernel = call.attrs.as<AttentionAttrs>().kernel;
  if (kernel == AttentionKernel::portable) cpu::refuse_portable_attention();
  return kernel == AttentionKernel::tiled;
}

}  // namespace

void attention(const KernelCall& call) {
  if (wants_tiled(call)) return attention_tiled(call);
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void attention_backward(const KernelCall& call) {
  if (wants_tiled(call)) return attention_tiled_backward(call);
  with_compute_type(is_double(call), [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
