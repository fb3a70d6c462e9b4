// Pointwise functions over dense operands: one pass, 16 bytes per access where all operands share a type.
// Speed of light: bytes of every input once and of the output once (twice when it accumulates).
#include "backend/cuda/pointwise.cuh"
#include "backend/pointwise_layout.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;
constexpr int unroll = 2;  // vectors per thread, a block apart, all loaded before the first is used

template <class T, int NIn> struct FlatArgs {
  T* out;
  const T* in[NIn];
  int64_t n;
  PointwiseOp op;
};

template <class T, int NIn>
__global__ void __launch_bounds__(threads) pointwise_flat(const __grid_constant__ FlatArgs<T, NIn> a) {
  constexpr int V = vector_length<T>;
  int64_t first = (int64_t(blockIdx.x) * (threads * unroll) + threadIdx.x) * V;
  Pack<T, V> raw[unroll][NIn], old[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t i = first + u * threads * V;
    if (i + V > a.n) continue;
#pragma unroll
    for (int j = 0; j < NIn; ++j) raw[u][j] = load_pack<T, V>(a.in[j] + i);
    if (a.op.accumulate) old[u] = load_pack<T, V>(a.out + i);
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t i = first + u * threads * V;
    if (i + V <= a.n) {
      float in[NIn][V], r[V];
#pragma unroll
      for (int j = 0; j < NIn; ++j) unpack(raw[u][j], in[j]);
      apply(a.op, r, in);
      if (a.op.accumulate) {
        float before[V];
        unpack(old[u], before);
#pragma unroll
        for (int k = 0; k < V; ++k) r[k] += before[k];
      }
      store_pack(a.out + i, r);
    } else {
      for (; i < a.n; ++i) {  // the tail of fewer than V elements belongs to one thread
        float in[NIn][1], r[1];
#pragma unroll
        for (int j = 0; j < NIn; ++j) in[j][0] = to_float(a.in[j][i]);
        apply(a.op, r, in);
        if (a.op.accumulate) r[0] += to_float(a.out[i]);
        a.out[i] = from_float<T>(r[0]);
      }
    }
  }
}

template <int NIn> struct MixedArgs {
  void* out;
  const void* in[NIn];
  int64_t n;
  PointwiseOp op;
  DType out_type, in_type[NIn];
};

// Operands of different types: four elements per access, 4 to 16 bytes. The cast between fp32 and 16 bits is this one.
template <int NIn>
__global__ void __launch_bounds__(threads) pointwise_mixed(const __grid_constant__ MixedArgs<NIn> a) {
  int64_t first = int64_t(blockIdx.x) * (threads * unroll) + threadIdx.x;
  Raw4 raw[unroll][NIn];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t g = first + u * threads;
    if (4 * g + 4 > a.n) continue;
#pragma unroll
    for (int j = 0; j < NIn; ++j) raw[u][j] = load_raw4(a.in[j], a.in_type[j], g);
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    int64_t g = first + u * threads;
    if (4 * g + 4 <= a.n) {
      float in[NIn][4], r[4];
#pragma unroll
      for (int j = 0; j < NIn; ++j) unpack4(raw[u][j], a.in_type[j], in[j]);
      apply(a.op, r, in);
      if (a.op.accumulate) {
        float before[4];
        unpack4(load_raw4(a.out, a.out_type, g), a.out_type, before);
#pragma unroll
        for (int k = 0; k < 4; ++k) r[k] += before[k];
      }
      store4(a.out, a.out_type, g, r);
    } else {
      for (int64_t i = 4 * g; i < a.n; ++i) {
        float in[NIn][1], r[1];
#pragma unroll
        for (int j = 0; j < NIn; ++j) in[j][0] = load<float>(a.in[j], a.in_type[j], i);
        apply(a.op, r, in);
        if (a.op.accumulate) r[0] += load<float>(a.out, a.out_type, i);
        store<float>(a.out, a.out_type, i, r[0]);
      }
    }
  }
}

template <class T, int NIn> void launch_flat(const KernelCall& call, const PointwiseOp& op, int64_t n) {
  FlatArgs<T, NIn> a{call.out[0].as<T>(), {}, n, op};
  for (int j = 0; j < NIn; ++j) a.in[j] = call.in[j].as<T>();
  int64_t blocks = ceil_div(n, int64_t(threads) * unroll * vector_length<T>);
  launch("pointwise", pointwise_flat<T, NIn>, grid_of("pointwise", blocks), threads, stream_of(call), a);
}

template <int NIn> void launch_mixed(const KernelCall& call, const PointwiseOp& op, int64_t n) {
  MixedArgs<NIn> a{call.out[0].data, {}, n, op, call.out[0].dtype, {}};
  for (int j = 0; j < NIn; ++j) a.in[j] = call.in[j].data, a.in_type[j] = call.in[j].dtype;
  int64_t blocks = ceil_div(n, int64_t(threads) * unroll * 4);
  launch("pointwise", pointwise_mixed<NIn>, grid_of("pointwise", blocks), threads, stream_of(call), a);
}

template <int NIn> void launch_dense(const KernelCall& call, const PointwiseOp& op, int64_t n, bool same) {
  if (!same) return launch_mixed<NIn>(call, op, n);
  with_float_type("pointwise", call.out[0].dtype, [&](auto t) { launch_flat<decltype(t), NIn>(call, op, n); });
}

// Same shape and contiguous: decided without building a loop nest, because this is the common case and its host time
// is compared with a bare launch.
bool dense_like(const TensorRef& t, const TensorRef& out) {
  if (t.rank != out.rank) return false;
  int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.dims[d] != out.dims[d]) return false;
    if (t.dims[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.dims[d];
  }
  return true;
}

}  // namespace

void pointwise(const KernelCall& call) {
  auto fn = static_cast<PointwiseFn>(call.variant);
  const auto& affine = call.attrs.as<AffineAttrs>();
  PointwiseOp op{fn, call.accumulates(0), float(affine.alpha), float(affine.beta)};
  const TensorRef& out = call.out[0];
  int inputs = inputs_of(fn);
  if (call.n_in != inputs) refuse("pointwise", "wrong number of inputs");

  // Flat kernels compute in fp32: some operand must be a float, none wider than 4 bytes.
  bool same = is_float(out.dtype), any_float = is_float(out.dtype), fits = fits_raw4(out.dtype);
  bool dense = aligned(out.data, 16) && dense_like(out, out);
  for (int j = 0; j < inputs && dense; ++j) {
    const TensorRef& t = call.in[j];
    same = same && t.dtype == out.dtype;
    any_float = any_float || is_float(t.dtype);
    fits = fits && fits_raw4(t.dtype);
    dense = aligned(t.data, 16) && dense_like(t, out);
  }
  if (!dense || !any_float || !fits) return pointwise_strided(call, op);
  int64_t n = numel(out);
  if (n == 0) return;
  switch (inputs) {
    case 1: return launch_dense<1>(call, op, n, same);
    case 2: return launch_dense<2>(call, op, n, same);
    default: return launch_dense<3>(call, op, n, same);
  }
}

}  // namespace sinter::cuda
