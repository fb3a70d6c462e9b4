// Attention tile by tile, written to be read: plain loops, one step of the algorithm after the other. The fast kernel,
// attention.cpp, is the same mathematics laid out for the machine.
//
// The problem. For each query q_i, with its scores s_ij = scale · q_i·k_j over the keys it sees:
//
//     p_ij = exp(s_ij) / Σ_j exp(s_ij)        o_i = Σ_j p_ij v_j
//
// Spelled out with matrices, S and P are Nq × Nk: for 16384 positions that is a gigabyte a head in fp32. But o_i is
// just a weighted mean, and a weighted mean can be taken a few keys at a time.
//
// The online softmax. Keep for each query three things: m, the largest score so far; l = Σ exp(s − m) so far; and
// o = Σ exp(s − m)·v so far. Subtracting m keeps exp from overflowing. When a tile of keys brings a larger score, m
// becomes m', and what was summed relative to m is made relative to m' by one factor:
//
//     exp(s − m') = exp(s − m) · exp(m − m')
//
// So l and o are multiplied by exp(m − m'), the tile's own terms are added, and nothing older is ever
// looked at again. After the last tile the output is o / l. Of the whole row of probabilities one number is
// kept for backward, L = m + log l.
//
// Backward. With L known, any probability can be had again from its score alone: p_ij = exp(s_ij − L_i). So backward
// computes each tile of S a second time instead of having stored it. Given do, the gradient of o:
//
//     dv_j  = Σ_i p_ij do_i
//     dp_ij = do_i·v_j
//     ds_ij = p_ij (dp_ij − Σ_k p_ik dp_ik)        the gradient of a softmax
//     dq_i  = scale · Σ_j ds_ij k_j
//     dk_j  = scale · Σ_i ds_ij q_i
//
// The sum inside ds runs over the whole row, which no tile has. But it can be had without any p:
//
//     Σ_k p_ik dp_ik = Σ_k p_ik (do_i·v_k) = do_i·(Σ_k p_ik v_k) = do_i·o_i = D_i
//
// so D = rowsum(do ∘ o) is computed first, once a row, and then every tile stands alone.
#include "backend/cpu/attention_shape.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// A tile: rows of D numbers, converted to the compute type A when they are loaded.
template <class A> void load_tile(A* tile, const TensorRef& t, int64_t b, int64_t h, int64_t first, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i)
    load_strip(tile + i * t.dims[3], row_at(t, b, h, first + i), t.dtype, t.dims[3], t.strides[3]);
}
template <class A>
void store_tile(const TensorRef& t, int64_t b, int64_t h, int64_t first, int64_t rows, const A* tile) {
  for (int64_t i = 0; i < rows; ++i)
    store_strip(row_at(t, b, h, first + i), t.dtype, t.dims[3], t.strides[3], tile + i * t.dims[3], false);
}
template <class A> void clear(A* tile, int64_t n) {
  for (int64_t i = 0; i < n; ++i) tile[i] = 0;
}
template <class A> A dot(const A* x, const A* y, int64_t n) {
  A sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}
template <class A> void add_scaled(A* y, A factor, const A* x, int64_t n) {
  for (int64_t d = 0; d < n; ++d) y[d] += factor * x[d];
}

template <class A> void forward(const KernelCall& call) {
  AttentionShape n(call);
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.out[0], &lse = call.out[1];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  int64_t T = cpu::attention_tile(attrs, n.D, sizeof(A)), D = n.D, tiles = (n.Nq + T - 1) / T;
  A scale = A(attrs.scale);

  // A task is one tile of queries of one head; tasks share nothing.
  parallel_for(n.B * n.H * tiles, 1, [&](int64_t begin, int64_t end) {
    A* space = buffer<A>(0, 4 * T * D + T * T + 2 * T);
    A *Q = space, *K = Q + T * D, *V = K + T * D, *O = V + T * D, *S = O + T * D, *m = S + T * T, *l = m + T;
    for (int64_t task = begin; task < end; ++task) {
      int64_t b = task / tiles / n.H, h = task / tiles % n.H, kv = h / n.group;
      int64_t q0 = task % tiles * T, rows = min_of(T, n.Nq - q0);
      load_tile(Q, q, b, h, q0, rows);
      clear(O, rows * D);
      for (int64_t i = 0; i < rows; ++i) m[i] = -A(__builtin_inf()), l[i] = 0;

      // No query of the tile sees a key past the last one's.
      for (int64_t k0 = 0, seen = n.sees(q0 + rows - 1); k0 < seen; k0 += T) {
        int64_t keys = min_of(T, seen - k0);
        load_tile(K, k, b, kv, k0, keys);
        load_tile(V, v, b, kv, k0, keys);

        for (int64_t i = 0; i < rows; ++i) {
          A* s = S + i * T;
          int64_t visible = min_of(keys, n.sees(q0 + i) - k0);  // of this tile, to this query; none when not positive
          if (visible <= 0) continue;

          A largest = m[i];
          for (int64_t j = 0; j < visible; ++j) {
            s[j] = scale * dot(Q + i * D, K + j * D, D);
            largest = max_of(largest, s[j]);
          }
          // What was summed so far becomes relative to the new maximum. At first m is
          // −inf, and exp(−inf) = 0 of nothing.
          A shrink = exp_of(m[i] - largest);
          m[i] = largest;
          l[i] *= shrink;
          for (int64_t d = 0; d < D; ++d) O[i * D + d] *= shrink;
          // Then this tile's terms.
          for (int64_t j = 0; j < visible; ++j) {
            A p = exp_of(s[j] - m[i]);
            l[i] += p;
            add_scaled(O + i * D, p, V + j * D, D);
          }
        }
      }

      // A query that saw nothing has l = 0: its output is 0 and its L is −inf.
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t d = 0; d < D; ++d) O[i * D + d] = l[i] == 0 ? A(0) : O[i * D + d] / l[i];
        stat_at<A>(lse, b, h, q0 + i) = l[i] == 0 ? -A(__builtin_inf()) : m[i] + log_of(l[i]);
      }
      store_tile(o, b, h, q0, rows, O);
    }
  });
}

template <class A> void backward(const KernelCall& call) {
  AttentionShape n(call);
  const TensorRef &q = call.in[0], &k = call.in[1], &v = call.in[2], &o = call.in[3], &lse = call.in[4],
                  &grad = call.in[5];
  const TensorRef &dq = call.out[0], &dk = call.out[1], &dv = call.out[2];
  const auto& attrs = call.attrs.as<AttentionAttrs>();
  int64_t T = cpu::attention_tile(attrs, n.D, sizeof(A)), D = n.D;
  A scale = A(attrs.scale);

  // A task is one key/value head with all the query heads that share it, so that no two tasks add to the same gradient.
  parallel_for(n.B * n.Hkv, 1, [&](int64_t begin, int64_t end) {
    A* space = buffer<A>(0, 7 * T * D + 2 * T);
    A *Q = space, *K = Q + T * D, *V = K + T * D, *O = V + T * D, *dO = O + T * D, *dK = dO + T * D, *dV = dK + T * D,
      *L = dV + T * D, *delta = L + T;
    A* dQ = buffer<A>(1, n.group * n.Nq * D);  // every tile of keys adds to every row of it
    for (int64_t task = begin; task < end; ++task) {
      int64_t b = task / n.Hkv, kv = task % n.Hkv;
      clear(dQ, n.group * n.Nq * D);
      for (int64_t k0 = 0; k0 < n.Nk; k0 += T) {
        int64_t keys = min_of(T, n.Nk - k0);
        load_tile(K, k, b, kv, k0, keys);
        load_tile(V, v, b, kv, k0, keys);
        clear(dK, keys * D);
        clear(dV, keys * D);

        for (int64_t g = 0; g < n.group; ++g)
          for (int64_t q0 = 0, h = kv * n.group + g; q0 < n.Nq; q0 += T) {
            int64_t rows = min_of(T, n.Nq - q0);
            if (n.sees(q0 + rows - 1) <= k0) continue;  // the mask hides the whole tile
            load_tile(Q, q, b, h, q0, rows);
            load_tile(O, o, b, h, q0, rows);
            load_tile(dO, grad, b, h, q0, rows);
            for (int64_t i = 0; i < rows; ++i) {
              delta[i] = dot(dO + i * D, O + i * D, D);
              L[i] = stat_at<A>(lse, b, h, q0 + i);
            }

            for (int64_t i = 0; i < rows; ++i)
              for (int64_t j = 0, visible = min_of(keys, n.sees(q0 + i) - k0); j < visible; ++j) {
                A s = scale * dot(Q + i * D, K + j * D, D);
                A p = exp_of(s - L[i]);  // the forward's probability, recomputed
                A dp = dot(dO + i * D, V + j * D, D);
                A ds = p * (dp - delta[i]);
                add_scaled(dV + j * D, p, dO + i * D, D);
                add_scaled(dK + j * D, scale * ds, Q + i * D, D);
                add_scaled(dQ + (g * n.Nq + q0 + i) * D, scale * ds, K + j * D, D);
              }
          }
        store_tile(dk, b, kv, k0, keys, dK);
        store_tile(dv, b, kv, k0, keys, dV);
      }
      for (int64_t g = 0; g < n.group; ++g) store_tile(dq, b, kv * n.group + g, 0, n.Nq, dQ + g * n.Nq * D);
    }
  });
}

bool is_double(const KernelCall& call) { return call.in[0].dtype == DType::f64; }

}  // namespace

void attention_tiled(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { forward<A>(call); });
}
void attention_tiled_backward(const KernelCall& call) {
  with_compute_type(is_double(call), [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
