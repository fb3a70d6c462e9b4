// Between the merged projection (B, T, (H + 2·Hkv)·D) and the heads (B, H, T, D), with rotary positions on q and k.
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// The rotation by the angles of one position; `sign` −1 undoes it.
template <class A>
SINTER_INLINE void rotate(A* out, const A* x, const A* cos, const A* sin, int64_t pairs, A sign) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    A a = x[2 * i], b = x[2 * i + 1], c = cos[i], s = sign * sin[i];
    out[2 * i] = a * c - b * s;
    out[2 * i + 1] = a * s + b * c;
  }
}

// One head of one row: where it lies in q, k or v, and whether it turns.
struct Heads {
  const TensorRef* parts;  // q, k, v
  int64_t heads, kv_heads, T, D;
  bool rotates;

  SINTER_INLINE int64_t count() const { return heads + 2 * kv_heads; }
  SINTER_INLINE bool turns(int64_t h) const { return rotates && h < heads + kv_heads; }
  SINTER_INLINE char* at(int64_t b, int64_t t, int64_t h) const {
    int part = h < heads ? 0 : h < heads + kv_heads ? 1 : 2;
    int64_t of_part = part == 0 ? heads : kv_heads, local = part == 0 ? h : part == 1 ? h - heads : h - heads - kv_heads;
    const TensorRef& ref = parts[part];
    return ref.as<char>() + ((b * of_part + local) * T + t) * D * size_of(ref.dtype);
  }
};

Heads heads_of(const KernelCall& call, const TensorRef* parts) {
  const auto& attrs = call.attrs.as<HeadsAttrs>();
  const TensorRef& q = parts[0];
  return {parts, attrs.heads, attrs.kv_heads, q.dims[2], q.dims[3], attrs.rotate};
}

// Visits every head of every row; head(row of the merged tensor, its batch and position, the angles' row).
template <class A, class F>
void for_each_row(const Heads& h, int64_t rows, const TensorRef& cos, const TensorRef& sin, const F& visit) {
  const A *c = h.rotates ? whole<A>(cos, 0) : nullptr, *s = h.rotates ? whole<A>(sin, 1) : nullptr;
  int64_t pairs = h.D / 2, d = h.count() * h.D;
  parallel_for(rows, rows_per_range(d), [&](int64_t begin, int64_t end) {
    A *spare = buffer<A>(0, d), *head = buffer<A>(1, h.D);
    for (int64_t i = begin; i < end; ++i) {
      int64_t b = i / h.T, t = i % h.T;
      visit(i, b, t, c + t * pairs, s + t * pairs, spare, head);
    }
  });
}

template <class A>
void forward(const KernelCall& call) {
  Rows merged = rows_of(call.in[0]);
  Heads h = heads_of(call, call.out);
  DType type = call.out[0].dtype;
  for_each_row<A>(h, merged.n, call.in[1], call.in[2],
                  [&](int64_t i, int64_t b, int64_t t, const A* cos, const A* sin, A* spare, A* turned) {
    const A* x = read_row(merged, i, spare);
    for (int64_t k = 0; k < h.count(); ++k, x += h.D) {
      char* out = h.at(b, t, k);
      const A* head = x;
      if (h.turns(k)) {
        A* target = type == dtype_for<A> ? reinterpret_cast<A*>(out) : turned;
        rotate(target, x, cos, sin, h.D / 2, A(1));
        head = target;
      }
      if (reinterpret_cast<const char*>(head) != out) store_strip(out, type, h.D, 1, head, false);
    }
  });
}

template <class A>
void backward(const KernelCall& call) {
  Rows merged = rows_of(call.out[0]);
  Heads h = heads_of(call, call.in);
  DType type = call.in[0].dtype;
  for_each_row<A>(h, merged.n, call.in[3], call.in[4],
                  [&](int64_t i, int64_t b, int64_t t, const A* cos, const A* sin, A* spare, A* loaded) {
    A *row = open_row(merged, i, spare, false), *x = row;
    for (int64_t k = 0; k < h.count(); ++k, x += h.D) {
      const char* in = h.at(b, t, k);
      if (!h.turns(k)) {
        load_strip(x, in, type, h.D, 1);
        continue;
      }
      const A* head = reinterpret_cast<const A*>(in);
      if (type != dtype_for<A>) {
        load_strip(loaded, in, type, h.D, 1);
        head = loaded;
      }
      rotate(x, head, cos, sin, h.D / 2, A(-1));
    }
    close_row(merged, i, row, false);
  });
}

}  // namespace

void split_heads(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { forward<A>(call); });
}
void split_heads_backward(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64, [&]<class A>() { backward<A>(call); });
}

}  // namespace sinter::SINTER_CPU_ISA
