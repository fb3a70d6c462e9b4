#include "backend/cpu/strips.h"

#include <immintrin.h>

#include "core/half.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

struct Bool {
  uint8_t value;
};

template <class A, class T> SINTER_INLINE A load(T x) { return A(x); }
template <class A> SINTER_INLINE A load(bf16 x) { return A(to_float(x)); }
template <class A> SINTER_INLINE A load(f16 x) { return A(to_float(x)); }
template <class A> SINTER_INLINE A load(Bool x) { return A(x.value); }

template <class T> struct Store {
  template <class A> SINTER_INLINE static T of(A x) { return T(x); }
};
template <> struct Store<bf16> {
  template <class A> SINTER_INLINE static bf16 of(A x) { return to_bf16(float(x)); }
};
template <> struct Store<f16> {
  template <class A> SINTER_INLINE static f16 of(A x) { return to_f16(float(x)); }
};
template <> struct Store<Bool> {
  template <class A> SINTER_INLINE static Bool of(A x) { return {uint8_t(x != A(0))}; }
};

// GCC does not vectorise conversions of _Float16 without AVX512-FP16, so these are by
// hand; they return how far they got.
template <class A, class T> SINTER_INLINE int64_t load_vectors(A*, const T*, int64_t) { return 0; }
SINTER_INLINE int64_t load_vectors(float* dst, const f16* src, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  return i;
}
template <class A, class T> SINTER_INLINE int64_t store_vectors(T*, const A*, int64_t) { return 0; }
SINTER_INLINE int64_t store_vectors(f16* dst, const float* src, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

template <class A, class T> void load_as(A* dst, const T* src, int64_t n, int64_t stride) {
  if (stride == 1) {
    int64_t i = load_vectors(dst, src, n);
#pragma omp simd
    for (int64_t j = i; j < n; ++j) dst[j] = load<A>(src[j]);
  } else if (stride == 0) {
    A x = load<A>(src[0]);
    for (int64_t i = 0; i < n; ++i) dst[i] = x;
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i] = load<A>(src[i * stride]);
  }
}

template <class A, class T> void store_as(T* dst, int64_t n, int64_t stride, const A* src, bool accumulate) {
  if (accumulate) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dst[i * stride] = Store<T>::of(A(load<A>(dst[i * stride]) + src[i]));
  } else if (stride == 1) {
    int64_t i = store_vectors(dst, src, n);
#pragma omp simd
    for (int64_t j = i; j < n; ++j) dst[j] = Store<T>::of(src[j]);
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * stride] = Store<T>::of(src[i]);
  }
}

// Calls f with a null pointer of the storage type.
template <class F> SINTER_INLINE void with_storage_type(DType type, const F& f) {
  switch (type) {
    case DType::f64: return f(static_cast<double*>(nullptr));
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::bf16: return f(static_cast<bf16*>(nullptr));
    case DType::f16: return f(static_cast<f16*>(nullptr));
    case DType::i64: return f(static_cast<int64_t*>(nullptr));
    case DType::i32: return f(static_cast<int32_t*>(nullptr));
    case DType::u8: return f(static_cast<uint8_t*>(nullptr));
    case DType::boolean: return f(static_cast<Bool*>(nullptr));
  }
}

}  // namespace

template <class A> void load_strip(A* dst, const void* src, DType type, int64_t n, int64_t stride) {
  if (type == dtype_for<A> && stride == 1) {
    __builtin_memcpy(dst, src, size_t(n) * sizeof(A));
    return;
  }
  with_storage_type(type,
                    [&](auto* tag) { load_as(dst, static_cast<decltype(tag)>(const_cast<void*>(src)), n, stride); });
}

template <class A> void store_strip(void* dst, DType type, int64_t n, int64_t stride, const A* src, bool accumulate) {
  if (type == dtype_for<A> && stride == 1 && !accumulate) {
    __builtin_memcpy(dst, src, size_t(n) * sizeof(A));
    return;
  }
  with_storage_type(type, [&](auto* tag) { store_as(static_cast<decltype(tag)>(dst), n, stride, src, accumulate); });
}

template void load_strip(float*, const void*, DType, int64_t, int64_t);
template void load_strip(double*, const void*, DType, int64_t, int64_t);
template void load_strip(int64_t*, const void*, DType, int64_t, int64_t);
template void store_strip(void*, DType, int64_t, int64_t, const float*, bool);
template void store_strip(void*, DType, int64_t, int64_t, const double*, bool);
template void store_strip(void*, DType, int64_t, int64_t, const int64_t*, bool);

}  // namespace sinter::SINTER_CPU_ISA
