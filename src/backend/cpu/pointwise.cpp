// Functions of single elements, with broadcasting and any strides and types (Note [Strips]).
#include "backend/cpu/strips.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t tile_elements = 2048;

template <class A>
using StripFunction = void (*)(A* out, const A* a, const A* b, const A* c, int64_t n, const AffineAttrs& affine);

template <class A, class F>
void unary(A* out, const A* a, const A*, const A*, int64_t n, const AffineAttrs&) {
  F f;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
}
template <class A, class F>
void binary(A* out, const A* a, const A* b, const A*, int64_t n, const AffineAttrs&) {
  F f;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}
template <class A>
void affine(A* out, const A* a, const A*, const A*, int64_t n, const AffineAttrs& attrs) {
  A alpha = A(attrs.alpha), beta = A(attrs.beta);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * a[i] + beta;
}
template <class A>
void where(A* out, const A* mask, const A* a, const A* b, int64_t n, const AffineAttrs&) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    A x = a[i], y = b[i];
    out[i] = mask[i] != A(0) ? x : y;
  }
}

// The exact GELU, x · Φ(x), and its slope Φ(x) + x · φ(x).
template <class A>
struct Gelu {
  SINTER_INLINE static A cdf(A x) { return A(0.5) * (A(1) + erf_of(x * A(0.70710678118654752))); }
  SINTER_INLINE A operator()(A x) const { return x * cdf(x); }
  SINTER_INLINE A operator()(A x, A dy) const {
    return dy * (cdf(x) + x * A(0.39894228040143268) * exp_of(A(-0.5) * x * x));
  }
};

#define SINTER_UNARY(Name, expression) \
  template <class A>                   \
  struct Name {                        \
    SINTER_INLINE A operator()(A x) const { return expression; } \
  };
#define SINTER_BINARY(Name, expression) \
  template <class A>                    \
  struct Name {                         \
    SINTER_INLINE A operator()(A x, A y) const { return expression; } \
  };
SINTER_BINARY(Add, x + y)
SINTER_BINARY(Sub, x - y)
SINTER_BINARY(Mul, x* y)
SINTER_BINARY(Div, x / y)
SINTER_UNARY(Neg, -x)
SINTER_UNARY(Exp, exp_of(x))
SINTER_UNARY(Log, log_of(x))
SINTER_UNARY(Sqrt, sqrt_of(x))
SINTER_UNARY(Rsqrt, A(1) / sqrt_of(x))
SINTER_UNARY(Sigmoid, sigmoid_of(x))
SINTER_UNARY(Silu, x* sigmoid_of(x))
SINTER_UNARY(Tanh, tanh_of(x))
SINTER_UNARY(Relu, x < A(0) ? A(0) : x)  // NaN passes
SINTER_UNARY(Square, x* x)
// y is the gradient of the result; x is the input, or the result for sigmoid and tanh.
SINTER_BINARY(SigmoidBackward, y* x*(A(1) - x))
SINTER_BINARY(TanhBackward, y*(A(1) - x * x))
SINTER_BINARY(ReluBackward, x > A(0) ? y : A(0))
template <class A>
struct SiluBackward {
  SINTER_INLINE A operator()(A x, A dy) const {
    A s = sigmoid_of(x);
    return dy * s * (A(1) + x * (A(1) - s));
  }
};
#undef SINTER_UNARY
#undef SINTER_BINARY

// Null for copy, which has nothing to compute.
template <class A>
StripFunction<A> arithmetic_function(PointwiseFn fn) {
  switch (fn) {
    case PointwiseFn::add: return binary<A, Add<A>>;
    case PointwiseFn::sub: return binary<A, Sub<A>>;
    case PointwiseFn::mul: return binary<A, Mul<A>>;
    case PointwiseFn::where: return where<A>;
    default: return nullptr;
  }
}

template <class A>
StripFunction<A> float_function(PointwiseFn fn) {
  switch (fn) {
    case PointwiseFn::div: return binary<A, Div<A>>;
    case PointwiseFn::neg: return unary<A, Neg<A>>;
    case PointwiseFn::exp: return unary<A, Exp<A>>;
    case PointwiseFn::log: return unary<A, Log<A>>;
    case PointwiseFn::sqrt: return unary<A, Sqrt<A>>;
    case PointwiseFn::rsqrt: return unary<A, Rsqrt<A>>;
    case PointwiseFn::sigmoid: return unary<A, Sigmoid<A>>;
    case PointwiseFn::silu: return unary<A, Silu<A>>;
    case PointwiseFn::gelu: return unary<A, Gelu<A>>;
    case PointwiseFn::tanh: return unary<A, Tanh<A>>;
    case PointwiseFn::relu: return unary<A, Relu<A>>;
    case PointwiseFn::square: return unary<A, Square<A>>;
    case PointwiseFn::affine: return affine<A>;
    case PointwiseFn::sigmoid_backward: return binary<A, SigmoidBackward<A>>;
    case PointwiseFn::silu_backward: return binary<A, SiluBackward<A>>;
    case PointwiseFn::gelu_backward: return binary<A, Gelu<A>>;
    case PointwiseFn::tanh_backward: return binary<A, TanhBackward<A>>;
    case PointwiseFn::relu_backward: return binary<A, ReluBackward<A>>;
    default: return arithmetic_function<A>(fn);
  }
}

// `rows` runs of the innermost dimension from row on, and of each the columns [col, col + cols).
struct Tile {
  int64_t row, rows, col, cols;
  SINTER_INLINE int64_t size() const { return rows * cols; }
};

// How the loop nest is cut into tiles. A tile is a stretch of one long run or several short runs; where an operand's
// innermost stride is not 1 it is a rectangle, so that the lines it touches are used whole.
struct Tiling {
  PointwiseLayout layout;
  int64_t inner, outer, tile_rows, tile_cols, across, count;
  bool dense[max_pointwise_operands];

  explicit Tiling(const KernelCall& call) {
    cpu::layout_of(layout, call.out[0], call.in, call.n_in);
    inner = layout.rank ? layout.dims[layout.rank - 1] : 1;
    outer = inner ? layout.numel / inner : 0;
    bool jumps = false;
    for (int o = 0; o < layout.operands; ++o) {
      dense[o] = true;
      int64_t expected = 1;
      for (int d = layout.rank - 1; d >= 0; --d) {
        dense[o] = dense[o] && layout.strides[o][d] == expected;
        expected *= layout.dims[d];
      }
      jumps = jumps || stride(o) > 1 || stride(o) < 0;
    }
    tile_cols = min_of(inner, jumps && outer > 1 ? 64 : tile_elements);
    tile_rows = tile_cols ? min_of(outer, max_of<int64_t>(1, tile_elements / tile_cols)) : 1;
    if (tile_cols < inner && !jumps) tile_rows = 1;
    across = tile_cols ? (inner + tile_cols - 1) / tile_cols : 0;
    count = across ? (outer + tile_rows - 1) / tile_rows * across : 0;
  }

  int64_t tiles_per_range() const { return rows_per_range(tile_rows * tile_cols); }

  SINTER_INLINE int64_t stride(int o) const { return layout.rank ? layout.strides[o][layout.rank - 1] : 1; }

  SINTER_INLINE Tile tile(int64_t i) const {
    int64_t row = i / across * tile_rows, col = i % across * tile_cols;
    return {row, min_of(tile_rows, outer - row), col, min_of(tile_cols, inner - col)};
  }

  SINTER_INLINE Walk walk(int o, const Tile& t) const {
    return Walk(layout.rank > 0 ? layout.rank - 1 : 0, layout.dims, layout.strides[o], t.row);
  }

  // The tile of operand o as one contiguous piece of memory, or null.
  SINTER_INLINE char* piece(int o, const TensorRef& ref, const Tile& t) const {
    char* data = static_cast<char*>(ref.data);
    if (dense[o] && (t.rows == 1 || t.cols == inner)) return data + (t.row * inner + t.col) * size_of(ref.dtype);
    if (t.rows > 1 || (stride(o) != 1 && t.cols > 1)) return nullptr;
    return data + (walk(o, t).offset + t.col * stride(o)) * size_of(ref.dtype);
  }
};

template <class A>
void gather(A* dst, const TensorRef& ref, const Tiling& tiling, int o, const Tile& t) {
  int64_t stride = tiling.stride(o), bytes = size_of(ref.dtype);
  Walk walk = tiling.walk(o, t);
  for (int64_t r = 0; r < t.rows; ++r, walk.next())
    load_strip(dst + r * t.cols, ref.as<char>() + (walk.offset + t.col * stride) * bytes, ref.dtype, t.cols, stride);
}

template <class A>
void scatter(const TensorRef& ref, const Tiling& tiling, const Tile& t, const A* src, bool accumulate) {
  int64_t stride = tiling.stride(0), bytes = size_of(ref.dtype);
  Walk walk = tiling.walk(0, t);
  for (int64_t r = 0; r < t.rows; ++r, walk.next())
    store_strip(ref.as<char>() + (walk.offset + t.col * stride) * bytes, ref.dtype, t.cols, stride, src + r * t.cols,
                accumulate);
}

template <class A>
void run(const KernelCall& call, StripFunction<A> function) {
  Tiling tiling(call);
  const TensorRef& out = call.out[0];
  const auto& attrs = call.attrs.as<AffineAttrs>();
  bool accumulate = call.accumulates(0);
  parallel_for(tiling.count, tiling.tiles_per_range(), [&](int64_t begin, int64_t end) {
    A* spare[max_pointwise_operands];
    for (int o = 0; o < tiling.layout.operands; ++o) spare[o] = buffer<A>(o, tile_elements);
    for (int64_t i = begin; i < end; ++i) {
      Tile t = tiling.tile(i);
      char* out_piece = tiling.piece(0, out, t);
      A* target = out_piece && out.dtype == dtype_for<A> && !accumulate ? reinterpret_cast<A*>(out_piece) : nullptr;
      const A* in[3] = {};
      for (int o = 1; o < tiling.layout.operands; ++o) {
        const TensorRef& ref = call.in[o - 1];
        char* piece = tiling.piece(o, ref, t);
        if (piece && ref.dtype == dtype_for<A>) {
          in[o - 1] = reinterpret_cast<A*>(piece);
          continue;
        }
        A* dst = !function && target ? target : spare[o];  // a copy is gathered where it belongs
        in[o - 1] = dst;
        if (piece) load_strip(dst, piece, ref.dtype, t.size(), 1); else gather(dst, ref, tiling, o, t);
      }
      const A* result = in[0];
      if (function) {
        A* dst = target ? target : spare[0];
        function(dst, in[0], in[1], in[2], t.size(), attrs);
        result = dst;
      }
      if (result == target) continue;
      if (out_piece) store_strip(out_piece, out.dtype, t.size(), 1, result, accumulate);
      else scatter(out, tiling, t, result, accumulate);
    }
  });
}

// Integers among themselves are computed as int64; as soon as a float takes part, as floats.
enum class Compute { as_float, as_double, as_integer };

Compute compute_type(const KernelCall& call, PointwiseFn fn) {
  bool any_float = is_float(call.out[0].dtype), any_double = call.out[0].dtype == DType::f64;
  for (int i = fn == PointwiseFn::where ? 1 : 0; i < call.n_in; ++i) {
    any_float = any_float || is_float(call.in[i].dtype);
    any_double = any_double || call.in[i].dtype == DType::f64;
  }
  return any_double ? Compute::as_double : any_float ? Compute::as_float : Compute::as_integer;
}

}  // namespace

void pointwise(const KernelCall& call) {
  auto fn = static_cast<PointwiseFn>(call.variant);
  Compute compute = compute_type(call, fn);
  if (compute == Compute::as_double) return run<double>(call, float_function<double>(fn));
  if (compute == Compute::as_float) return run<float>(call, float_function<float>(fn));
  auto function = arithmetic_function<int64_t>(fn);
  if (!function && fn != PointwiseFn::copy) cpu::refuse("pointwise", "this function is not defined for integers", call);
  run<int64_t>(call, function);
}

void fill(const KernelCall& call) {
  const TensorRef& out = call.out[0];
  double value = call.attrs.as<FillAttrs>().value;
  // A constant strip of the output's type, copied wherever a run of the output lies.
  Tiling tiling(call);
  int64_t bytes = size_of(out.dtype), stride = tiling.stride(0);
  double* strip = buffer<double>(cpu::call_slot, tile_elements);
  for (int64_t i = 0; i < tile_elements; ++i) strip[i] = value;
  char* pattern = buffer<char>(cpu::call_slot + 1, tile_elements * bytes);
  store_strip(pattern, out.dtype, tile_elements, 1, strip, false);
  parallel_for(tiling.count, tiling.tiles_per_range(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Tile t = tiling.tile(i);
      char* piece = tiling.piece(0, out, t);
      if (piece && (stride == 1 || t.size() == 1)) __builtin_memcpy(piece, pattern, size_t(t.size() * bytes));
      else scatter(out, tiling, t, strip, false);
    }
  });
}

}  // namespace sinter::SINTER_CPU_ISA
