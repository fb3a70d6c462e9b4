// Between the fused projection's rows (B,T,(H+2·Hkv)·D) and heads (B,H,T,D), with the rotary embedding on the way.
// Speed of light: every element read once and written once; the tables come from cache. In a compiled step heads lie in
// the rows themselves: then queries and keys are rotated in place, and values stay untouched.
#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"

namespace sinter::cuda {

namespace {

struct HeadsArgs {
  void* rows;       // qkv, or dqkv
  void *q, *k, *v;  // or their gradients
  const float *cos, *sin;
  int64_t count, stride;  // B·T rows
  struct {
    int64_t batch, head, position;
  } at[3];                           // strides of q, k and v
  int T, D, heads, kv_heads, moved;  // moved: the heads that are, from the first on
  bool rotate;
};

// The head that column `e` of a row belongs to: its array, and the offset of its element 0 at position (b, t).
struct HeadPlace {
  void* data;
  int64_t offset;
  bool rotated;
};
__device__ __forceinline__ HeadPlace place_of(const HeadsArgs& a, int head, int64_t b, int t) {
  int part = head < a.heads ? 0 : head < a.heads + a.kv_heads ? 1 : 2;
  int h = head - (part == 0 ? 0 : part == 1 ? a.heads : a.heads + a.kv_heads);
  const auto& s = a.at[part];
  return {part == 0 ? a.q : part == 1 ? a.k : a.v, b * s.batch + h * s.head + t * s.position, a.rotate && part < 2};
}

// A thread moves V elements of one head (V even), or one with V == 1, where it reads its pair's other half itself.
template <class T, int V, bool Backward>
__global__ void __launch_bounds__(512) move_heads(const __grid_constant__ HeadsArgs a) {
  int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= a.count) return;
  int64_t b = int(row) / a.T;
  int t = int(row) % a.T, half = a.D / 2, chunks = a.moved * a.D / V;
  T* flat = static_cast<T*>(a.rows) + row * a.stride;
  for (int c = threadIdx.x; c < chunks; c += blockDim.x) {
    int e = c * V, head = e / a.D, i = e - head * a.D;
    HeadPlace place = place_of(a, head, b, t);
    T* headed = static_cast<T*>(place.data) + place.offset + i;
    const T* from = Backward ? headed : flat + e;
    T* to = Backward ? flat + e : headed;
    float x[V];
    unpack(load_pack<T, V>(from), x);
    if (place.rotated) {
      constexpr int pairs = V > 1 ? V / 2 : 1;
      float cs[pairs], sn[pairs];
      unpack(load_pack<float, pairs>(a.cos + int64_t(t) * half + i / 2), cs);
      unpack(load_pack<float, pairs>(a.sin + int64_t(t) * half + i / 2), sn);
      if constexpr (V == 1) {
        float other = to_float(from[i % 2 ? -1 : 1]), s = Backward ? -sn[0] : sn[0];
        x[0] = i % 2 ? other * s + x[0] * cs[0] : x[0] * cs[0] - other * s;
      } else {
#pragma unroll
        for (int p = 0; p < pairs; ++p) {
          float s = Backward ? -sn[p] : sn[p], u = x[2 * p], w = x[2 * p + 1];
          x[2 * p] = u * cs[p] - w * s;
          x[2 * p + 1] = u * s + w * cs[p];
        }
      }
    }
    store_pack(to, x);
  }
}

template <bool Backward>
void run_heads(const char* name, const KernelCall& call, const Rows& rows, const TensorRef* heads,
               const TensorRef* tables) {
  const auto& attrs = call.attrs.as<HeadsAttrs>();
  const TensorRef& q = heads[0];
  if (attrs.rotate) need_f32(name, {&tables[0], &tables[1]});
  HeadsArgs a{};
  a.rows = rows.data, a.q = heads[0].data, a.k = heads[1].data, a.v = heads[2].data;
  a.cos = tables[0].as<float>(), a.sin = tables[1].as<float>();
  a.count = rows.rows, a.stride = rows.stride;
  a.T = int(q.dims[2]), a.D = int(q.dims[3]), a.heads = int(attrs.heads), a.kv_heads = int(attrs.kv_heads);
  a.rotate = attrs.rotate;
  int64_t values = (attrs.heads + attrs.kv_heads) * q.dims[3] * size_of(rows.dtype);
  bool in_place = a.v == static_cast<char*>(rows.data) + values;
  a.moved = a.heads + (in_place ? 1 : 2) * a.kv_heads;
  for (int j = 0; j < 3; ++j) {
    if (heads[j].dtype != rows.dtype) refuse(name, "q, k, v and the rows must have one type");
    a.at[j] = {heads[j].strides[0], heads[j].strides[1], heads[j].strides[2]};
  }
  if (a.count == 0 || rows.cols == 0) return;
  grid_of(name, a.count);  // rows are counted in 32 bits
  with_float_type(name, rows.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int V = vector_length<T>;
    bool vectors = rows.vectors_of(V) && a.D % V == 0 && (!attrs.rotate || (aligned(a.cos, 16) && aligned(a.sin, 16)));
    for (int j = 0; j < 3; ++j)
      vectors = vectors && aligned(heads[j].data, 16) && a.at[j].head % V == 0 && a.at[j].position % V == 0;
    if (in_place && !vectors)
      refuse(name, "in place a pair must be one thread's, so heads must be whole vectors of 16 bytes");
    RowGrid g = row_grid(name, a.count, int64_t(a.moved) * a.D / (vectors ? V : 1));
    launch(name, vectors ? move_heads<T, V, Backward> : move_heads<T, 1, Backward>, g.grid, g.block, stream_of(call),
           a);
  });
}

}  // namespace

void split_heads(const KernelCall& call) {
  run_heads<false>("split_heads", call, rows_of(call.in[0]), call.out, call.in + 1);
}
void split_heads_backward(const KernelCall& call) {
  run_heads<true>("split_heads_backward", call, rows_of(call.out[0]), call.in, call.in + 3);
}

}  // namespace sinter::cuda
