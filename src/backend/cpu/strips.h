// Note [Strips]: kernels compute in one of two types, float or double (and int64_t in pointwise), whatever the operands
// are stored as. An operand of another type is converted a strip (or a row) at a time into a buffer that stays in the
// L1 or L2 cache; one that already has the type is used where it lies. So a kernel is written once per compute type,
// any mix of storage types works, and fp32, the case that must be fast, pays nothing.
#pragma once
#include <cstdint>

#include "backend/cpu/fast_math.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/support.h"
#include "backend/cpu/thread_pool.h"
#include "core/attrs.h"

namespace sinter::SINTER_CPU_ISA {

// A is float, double or int64_t; strides are in elements. Float to integer truncates, anything to bool is x != 0.
template <class A>
void load_strip(A* dst, const void* src, DType type, int64_t n, int64_t stride);  // dst[i] = src[i·stride]
template <class A>
void store_strip(void* dst, DType type, int64_t n, int64_t stride, const A* src, bool accumulate);  // = or +=

template <class A> constexpr DType dtype_for = sizeof(A) == 4 ? DType::f32 : A(0.5) == 0 ? DType::i64 : DType::f64;

// Work that one thread should do at least, in elements of a memory-bound loop.
constexpr int64_t elements_per_range = 16384;

SINTER_INLINE int64_t rows_per_range(int64_t d) {
  return d > elements_per_range ? 1 : elements_per_range / max_of<int64_t>(d, 1);
}

template <class A> SINTER_INLINE A* buffer(int slot, int64_t n) {
  return static_cast<A*>(cpu::scratch(slot, n * int64_t(sizeof(A))));
}

// Single elements, for scalars, statistics and indices.
SINTER_INLINE double scalar_at(const TensorRef& t, int64_t i) {
  return t.dtype == DType::f64 ? t.as<double>()[i] : double(t.as<float>()[i]);
}
SINTER_INLINE void set_scalar(const TensorRef& t, int64_t i, double value) {
  if (t.dtype == DType::f64) t.as<double>()[i] = value;
  else t.as<float>()[i] = float(value);
}
SINTER_INLINE int64_t index_at(const TensorRef& t, int64_t i) {
  return t.dtype == DType::i64 ? t.as<int64_t>()[i] : int64_t(t.as<int32_t>()[i]);
}

// A tensor as n rows of d contiguous elements.
struct Rows {
  char* data;
  DType dtype;
  int64_t n, d, stride;

  SINTER_INLINE char* at(int64_t i) const { return data + i * stride * size_of(dtype); }
};

SINTER_INLINE Rows rows_of(const TensorRef& t) {
  int64_t d = t.rank ? t.dims[t.rank - 1] : 1;
  Rows r{static_cast<char*>(t.data), t.dtype, 1, d, d};
  for (int i = 0; i + 1 < t.rank; ++i) {
    r.n *= t.dims[i];
    if (t.dims[i] != 1) r.stride = t.strides[i];  // the innermost one counts; the outer ones fold onto it
  }
  return r;
}

template <class A> SINTER_INLINE const A* read_row(const Rows& r, int64_t i, A* spare) {
  if (r.dtype == dtype_for<A>) return reinterpret_cast<const A*>(r.at(i));
  load_strip(spare, r.at(i), r.dtype, r.d, 1);
  return spare;
}

// Where to compute row i: in place when nothing has to be converted or added. close_row brings it home.
template <class A> SINTER_INLINE A* open_row(const Rows& r, int64_t i, A* spare, bool accumulate) {
  return r.dtype == dtype_for<A> && !accumulate ? reinterpret_cast<A*>(r.at(i)) : spare;
}
template <class A> SINTER_INLINE void close_row(const Rows& r, int64_t i, const A* result, bool accumulate) {
  if (r.dtype != dtype_for<A> || accumulate) store_strip(r.at(i), r.dtype, r.d, 1, result, accumulate);
}

// A whole vector (a norm's weight) as A, shared by all ranges of the call.
template <class A> SINTER_INLINE const A* whole(const TensorRef& t, int slot) {
  if (t.dtype == dtype_for<A>) return t.as<A>();
  int64_t n = numel(t);
  A* copy = buffer<A>(cpu::call_slot + slot, n);
  load_strip(copy, t.data, t.dtype, n, 1);
  return copy;
}

// Calls run.operator()<A>() with A the compute type.
template <class F> SINTER_INLINE void with_compute_type(bool is_double, const F& run) {
  if (is_double) run.template operator()<double>();
  else run.template operator()<float>();
}

// Walks the rows of a strided tensor in order, keeping the offset of one operand.
struct Walk {
  int rank;
  const int64_t *dims, *strides;
  int64_t index[max_rank];
  int64_t offset = 0;

  SINTER_INLINE Walk(int rank_, const int64_t* dims_, const int64_t* strides_, int64_t row)
      : rank(rank_), dims(dims_), strides(strides_) {
    for (int d = rank - 1; d >= 0; --d) {
      index[d] = row % dims[d];
      row /= dims[d];
      offset += index[d] * strides[d];
    }
  }
  SINTER_INLINE void next() {
    for (int d = rank - 1; d >= 0; --d) {
      offset += strides[d];
      if (++index[d] < dims[d]) return;
      offset -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
};

}  // namespace sinter::SINTER_CPU_ISA
