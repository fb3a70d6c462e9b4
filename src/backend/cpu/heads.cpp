// Between the merged projection (B, T, (H + 2·Hkv)·D) and the heads (B, H, T, D), with rotary positions on q
// and k. Heads may lie in the rows.
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

// Positions done together for one head. The side that is read should be one long stretch of memory, because the CPU
// fetches ahead what it reads in order: whole merged rows when splitting, some rows of a head when merging.
constexpr int64_t split_block = 1, merge_block = 16;

// The rotation by the angles of one position; sign −1 undoes it.
template <class A> SINTER_INLINE void rotate(A* out, const A* x, const A* cos, const A* sin, int64_t pairs, A sign) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    A a = x[2 * i], b = x[2 * i + 1], c = cos[i], s = sign * sin[i];
    out[2 * i] = a * c - b * s;
    out[2 * i + 1] = a * s + b * c;
  }
}

// Both directions of the copy between the merged rows and parts = {q, k, v}.
template <class A>
void move_heads(const KernelCall& call, const TensorRef& merged_ref, const TensorRef* parts, const TensorRef* tables,
                bool splits) {
  const auto& attrs = call.attrs.as<HeadsAttrs>();
  Rows merged = rows_of(merged_ref);
  DType type = merged.dtype;
  int64_t H = attrs.heads, Hkv = attrs.kv_heads, T = parts[0].dims[2], D = parts[0].dims[3], bytes = size_of(type);
  const A *cos = nullptr, *sin = nullptr;
  if (attrs.rotate) {
    cos = whole<A>(tables[0], 0);
    sin = whole<A>(tables[1], 1);
  }
  A sign = splits ? A(1) : A(-1);
  int64_t block = splits ? split_block : merge_block, blocks = (T + block - 1) / block;
  parallel_for(parts[0].dims[0] * blocks, rows_per_range(block * merged.d), [&](int64_t begin, int64_t end) {
    A *loaded = buffer<A>(0, D), *turned = buffer<A>(1, D);
    for (int64_t i = begin; i < end; ++i) {
      int64_t b = i / blocks, first = i % blocks * block, last = min_of(T, first + block);
      for (int64_t h = 0; h < H + 2 * Hkv; ++h) {
        int part = h < H ? 0 : h < H + Hkv ? 1 : 2;
        int64_t local = part == 0 ? h : part == 1 ? h - H : h - H - Hkv;
        bool turns = attrs.rotate && part < 2;
        for (int64_t t = first; t < last; ++t) {
          char* row = merged.at(b * T + t) + h * D * bytes;
          const int64_t* stride = parts[part].strides;
          char* head = parts[part].as<char>() + (b * stride[0] + local * stride[1] + t * stride[2]) * bytes;
          char *from = splits ? row : head, *to = splits ? head : row;
          if (!turns) {
            if (to != from) __builtin_memcpy(to, from, size_t(D * bytes));
          } else if (type == dtype_for<A>) {
            rotate(reinterpret_cast<A*>(to), reinterpret_cast<A*>(from), cos + t * (D / 2), sin + t * (D / 2), D / 2,
                   sign);
          } else {
            load_strip(loaded, from, type, D, 1);
            rotate(turned, loaded, cos + t * (D / 2), sin + t * (D / 2), D / 2, sign);
            store_strip(to, type, D, 1, turned, false);
          }
        }
      }
    }
  });
}

}  // namespace

void split_heads(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64,
                    [&]<class A>() { move_heads<A>(call, call.in[0], call.out, call.in + 1, true); });
}
void split_heads_backward(const KernelCall& call) {
  with_compute_type(call.in[0].dtype == DType::f64,
                    [&]<class A>() { move_heads<A>(call, call.out[0], call.in, call.in + 3, false); });
}

}  // namespace sinter::SINTER_CPU_ISA
