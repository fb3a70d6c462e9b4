// Functions of single elements, with broadcasting and any strides and types (Note [Strips]).
#include "backend/cpu/pointwise_functions.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t tile_elements = 2048;

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
    tile_cols = max_of<int64_t>(1, tile_cols);
    tile_rows = tile_cols < inner && !jumps ? 1 : max_of<int64_t>(1, min_of(outer, tile_elements / tile_cols));
    across = (inner + tile_cols - 1) / tile_cols;
    count = (outer + tile_rows - 1) / tile_rows * across;
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

  // The tile is a rectangle that operand o stores column by column.
  SINTER_INLINE bool transposed(int o, const Tile& t) const {
    if (layout.rank < 2 || tile_cols != 64 || stride(o) == 0) return false;
    int64_t rows = layout.dims[layout.rank - 2];
    return layout.strides[o][layout.rank - 2] == 1 && t.rows <= tile_elements / 64 && t.row % rows + t.rows <= rows;
  }

  // The tile of operand o as one contiguous piece of memory, or null.
  SINTER_INLINE char* piece(int o, const TensorRef& ref, const Tile& t) const {
    char* data = static_cast<char*>(ref.data);
    if (dense[o] && (t.rows == 1 || t.cols == inner)) return data + (t.row * inner + t.col) * size_of(ref.dtype);
    if (t.rows > 1 || (stride(o) != 1 && t.cols > 1)) return nullptr;
    return data + (walk(o, t).offset + t.col * stride(o)) * size_of(ref.dtype);
  }
};

template <class A> void gather(A* dst, const TensorRef& ref, const Tiling& tiling, int o, const Tile& t) {
  int64_t stride = tiling.stride(o), bytes = size_of(ref.dtype);
  Walk walk = tiling.walk(o, t);
  if (tiling.transposed(o, t)) {  // read along the operand's own rows, and turn the tile in the cache
    A column[tile_elements / 64];
    for (int64_t c = 0; c < t.cols; ++c) {
      load_strip(column, ref.as<char>() + (walk.offset + (t.col + c) * stride) * bytes, ref.dtype, t.rows, 1);
      for (int64_t r = 0; r < t.rows; ++r) dst[r * t.cols + c] = column[r];
    }
    return;
  }
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

template <class A> void run(const KernelCall& call, StripFunction<A> function) {
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
        if (piece) load_strip(dst, piece, ref.dtype, t.size(), 1);
        else gather(dst, ref, tiling, o, t);
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
