// Pointwise functions over any strides, and over integers and fp64 scalars.
// Speed of light as in pointwise.cu; reached where the innermost dimension is contiguous (permutes that keep it, and
// broadcasts along rows or from a scalar); a transposing copy is bound by its uncoalesced side.
#include "backend/cuda/pointwise.cuh"
#include "backend/pointwise_layout.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;

// Index is int32_t when every offset fits, which halves the cost of the divisions.
template <class Index, int NIn> struct StridedArgs {
  void* data[1 + NIn];  // out first
  Index count;          // of groups
  Index dims[max_rank];
  Index strides[1 + NIn][max_rank];
  int rank;
  PointwiseOp op;
  DType type[1 + NIn];
};

template <class Index, int NIn>
__device__ __forceinline__ void offsets_of(const StridedArgs<Index, NIn>& a, Index i, Index (&offset)[1 + NIn]) {
#pragma unroll
  for (int o = 0; o <= NIn; ++o) offset[o] = 0;
  for (int d = a.rank - 1; d >= 0; --d) {
    Index c = i;
    if (d > 0) {
      Index q = i / a.dims[d];
      c = i - q * a.dims[d];
      i = q;
    }
#pragma unroll
    for (int o = 0; o <= NIn; ++o) offset[o] += c * a.strides[o][d];
  }
}

// Groups of N elements along the innermost dimension, where each operand has stride 1 (loaded as vectors) or 0 (one
// element for all). dims[rank - 1] counts groups; strides stay in elements, the innermost being N or 0.
template <class Index, int NIn, int N>
__global__ void __launch_bounds__(threads) pointwise_groups(const __grid_constant__ StridedArgs<Index, NIn> a) {
  Index i = Index(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.count) return;
  Index offset[1 + NIn];
  offsets_of(a, i, offset);
  constexpr int parts = N / 4;
  Raw4 raw[NIn][parts];
#pragma unroll
  for (int j = 0; j < NIn; ++j) {
    if (a.strides[1 + j][a.rank - 1] != 0) {
#pragma unroll
      for (int p = 0; p < parts; ++p) raw[j][p] = load_raw4(a.data[1 + j], a.type[1 + j], offset[1 + j] / 4 + p);
    }
  }
  float in[NIn][N], r[N];
#pragma unroll
  for (int j = 0; j < NIn; ++j) {
    if (a.strides[1 + j][a.rank - 1] != 0) {
#pragma unroll
      for (int p = 0; p < parts; ++p) {
        float v[4];
        unpack4(raw[j][p], a.type[1 + j], v);
#pragma unroll
        for (int k = 0; k < 4; ++k) in[j][4 * p + k] = v[k];
      }
    } else {
      float x = load<float>(a.data[1 + j], a.type[1 + j], offset[1 + j]);
#pragma unroll
      for (int k = 0; k < N; ++k) in[j][k] = x;
    }
  }
  apply(a.op, r, in);
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = r[4 * p + k];
    if (a.op.accumulate) {
      float before[4];
      unpack4(load_raw4(a.data[0], a.type[0], offset[0] / 4 + p), a.type[0], before);
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] += before[k];
    }
    store4(a.data[0], a.type[0], offset[0] / 4 + p, v);
  }
}

// The permute: 16-byte pieces moved as they are, whatever their type.
template <class Index>
__global__ void __launch_bounds__(threads) copy_groups(const __grid_constant__ StridedArgs<Index, 1> a) {
  Index i = Index(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.count) return;
  Index offset[2];
  offsets_of(a, i, offset);
  static_cast<uint4*>(a.data[0])[offset[0]] = static_cast<const uint4*>(a.data[1])[offset[1]];
}

// fp64 and integer arithmetic: the functions that make sense for both.
template <class C> __device__ __forceinline__ C apply_plain(PointwiseFn fn, double alpha, double beta, const C* in) {
  switch (fn) {
    case PointwiseFn::add: return in[0] + in[1];
    case PointwiseFn::sub: return in[0] - in[1];
    case PointwiseFn::mul: return in[0] * in[1];
    case PointwiseFn::div: return in[0] / (in[1] == C(0) && std::is_integral_v<C> ? C(1) : in[1]);
    case PointwiseFn::neg: return -in[0];
    case PointwiseFn::square: return in[0] * in[0];
    case PointwiseFn::affine: return C(alpha * double(in[0]) + beta);
    case PointwiseFn::where: return in[0] != C(0) ? in[1] : in[2];
    default: return in[0];
  }
}
constexpr bool plain(PointwiseFn fn) {
  using F = PointwiseFn;
  return fn == F::add || fn == F::sub || fn == F::mul || fn == F::div || fn == F::neg || fn == F::square ||
         fn == F::affine || fn == F::where || fn == F::copy;
}

// One element per thread, any strides, computed in C.
template <class C, class Index, int NIn>
__global__ void __launch_bounds__(threads) pointwise_elements(const __grid_constant__ StridedArgs<Index, NIn> a) {
  Index i = Index(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.count) return;
  Index offset[1 + NIn];
  offsets_of(a, i, offset);
  C result;
  if constexpr (std::is_same_v<C, float>) {
    float in[NIn][1], r[1];
#pragma unroll
    for (int j = 0; j < NIn; ++j) in[j][0] = load<float>(a.data[1 + j], a.type[1 + j], offset[1 + j]);
    apply(a.op, r, in);
    result = r[0];
  } else {
    C in[3] = {};
#pragma unroll
    for (int j = 0; j < NIn; ++j) in[j] = load<C>(a.data[1 + j], a.type[1 + j], offset[1 + j]);
    result = apply_plain(a.op.fn, a.op.alpha, a.op.beta, in);
  }
  if (a.op.accumulate) result += load<C>(a.data[0], a.type[0], offset[0]);
  store<C>(a.data[0], a.type[0], offset[0], result);
}

// The largest group (8, 4) along the innermost dimension that every operand can be accessed by; 1 if none.
int group_of(const KernelCall& call, const PointwiseLayout& l) {
  int inner = l.rank - 1;
  bool narrow = true;
  for (int o = 0; o < l.operands; ++o) {
    const TensorRef& t = o ? call.in[o - 1] : call.out[0];
    if (!fits_raw4(t.dtype) || (l.strides[o][inner] != 1 && !(o && l.strides[o][inner] == 0))) return 1;
    narrow = narrow && size_of(t.dtype) <= 2;
  }
  // 8 needs no wider alignment than 4: it is read in two halves, side by side.
  for (int n : {8, 4}) {
    if (n == 8 && !narrow) continue;
    bool ok = l.dims[inner] % n == 0;
    for (int o = 0; o < l.operands && ok; ++o) {
      const TensorRef& t = o ? call.in[o - 1] : call.out[0];
      if (l.strides[o][inner] == 0) continue;
      ok = aligned(t.data, 4 * size_of(t.dtype));
      for (int d = 0; d < inner; ++d) ok = ok && l.strides[o][d] % 4 == 0;
    }
    if (ok) return n;
  }
  return 1;
}

// Elements per 16 bytes if this is a plain copy between equal types whose runs can be moved in such pieces; else 0.
int copy_piece(const KernelCall& call, const PointwiseLayout& l, const PointwiseOp& op) {
  DType t = call.out[0].dtype;
  if (op.fn != PointwiseFn::copy || op.accumulate || call.in[0].dtype != t) return 0;
  int n = int(16 / size_of(t)), inner = l.rank - 1;
  if (l.dims[inner] % n || !aligned(call.in[0].data, 16) || !aligned(call.out[0].data, 16)) return 0;
  for (int o = 0; o < 2; ++o) {
    if (l.strides[o][inner] != 1) return 0;
    for (int d = 0; d < inner; ++d)
      if (l.strides[o][d] % n) return 0;
  }
  return n;
}

template <class Index, int NIn>
StridedArgs<Index, NIn> strided_args(const KernelCall& call, const PointwiseLayout& l, const PointwiseOp& op,
                                     int group) {
  StridedArgs<Index, NIn> a{};
  a.op = op;
  a.rank = l.rank;
  a.count = Index(l.numel / group);
  for (int d = 0; d < l.rank; ++d) a.dims[d] = Index(d == l.rank - 1 ? l.dims[d] / group : l.dims[d]);
  for (int o = 0; o <= NIn; ++o) {
    const TensorRef& t = o ? call.in[o - 1] : call.out[0];
    a.data[o] = t.data;
    a.type[o] = t.dtype;
    for (int d = 0; d < l.rank; ++d) a.strides[o][d] = Index(l.strides[o][d] * (d == l.rank - 1 ? group : 1));
  }
  return a;
}

template <class Index, int NIn>
void launch_strided(const KernelCall& call, const PointwiseLayout& l, const PointwiseOp& op) {
  cudaStream_t s = stream_of(call);
  auto blocks = [](int64_t count) { return grid_of("pointwise", ceil_div(count, threads)); };
  if constexpr (NIn == 1) {
    if (int piece = copy_piece(call, l, op)) {
      auto a = strided_args<Index, 1>(call, l, op, piece);
      for (auto& strides : a.strides)
        for (int d = 0; d < a.rank; ++d) strides[d] /= piece;  // in units of 16 bytes
      return launch("copy", copy_groups<Index>, blocks(a.count), threads, s, a);
    }
  }
  bool any_float = false, any_f64 = false;
  for (int o = 0; o <= NIn; ++o) {
    DType t = o ? call.in[o - 1].dtype : call.out[0].dtype;
    any_float = any_float || is_float(t);
    any_f64 = any_f64 || t == DType::f64;
  }
  int group = any_float && !any_f64 ? group_of(call, l) : 1;
  auto a = strided_args<Index, NIn>(call, l, op, group);
  unsigned grid = blocks(a.count);
  if (group == 8) return launch("pointwise", pointwise_groups<Index, NIn, 8>, grid, threads, s, a);
  if (group == 4) return launch("pointwise", pointwise_groups<Index, NIn, 4>, grid, threads, s, a);
  if (any_float && !any_f64) return launch("pointwise", pointwise_elements<float, Index, NIn>, grid, threads, s, a);
  if (!plain(op.fn)) refuse("pointwise", "this function is not available for fp64 or integers; cast to fp32 first");
  if (any_f64) return launch("pointwise", pointwise_elements<double, Index, NIn>, grid, threads, s, a);
  launch("pointwise", pointwise_elements<int64_t, Index, NIn>, grid, threads, s, a);
}

// Every index and offset, in elements, stays well below 2^31.
bool small(const PointwiseLayout& l) {
  constexpr int64_t limit = int64_t(1) << 30;
  if (l.numel >= limit) return false;
  for (int o = 0; o < l.operands; ++o) {
    int64_t reach = 0;
    for (int d = 0; d < l.rank; ++d)
      reach += (l.dims[d] - 1) * (l.strides[o][d] < 0 ? -l.strides[o][d] : l.strides[o][d]);
    if (reach >= limit) return false;
  }
  return true;
}

template <int NIn> void launch_by_index(const KernelCall& call, const PointwiseLayout& l, const PointwiseOp& op) {
  if (small(l)) launch_strided<int32_t, NIn>(call, l, op);
  else launch_strided<int64_t, NIn>(call, l, op);
}

}  // namespace

void pointwise_strided(const KernelCall& call, const PointwiseOp& op) {
  PointwiseLayout l = pointwise_layout(call.out[0], call.in, inputs_of(op.fn));
  if (l.numel == 0) return;
  if (l.rank == 0) {  // a scalar is a row of one
    l.rank = 1;
    l.dims[0] = 1;
    for (int o = 0; o < l.operands; ++o) l.strides[o][0] = 1;
  }
  switch (inputs_of(op.fn)) {
    case 1: return launch_by_index<1>(call, l, op);
    case 2: return launch_by_index<2>(call, l, op);
    default: return launch_by_index<3>(call, l, op);
  }
}

}  // namespace sinter::cuda
