#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/half.h"
#include "dist/group.h"

namespace sinter::dist {
namespace {

constexpr int64_t tile = 2048;  // elements: what is added up stays in the first-level cache

template <class T> [[gnu::always_inline]] inline auto widened(T x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  else return to_float(x);
}
template <class T, class A> [[gnu::always_inline]] inline T narrowed(A x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  else if constexpr (std::is_same_v<T, bf16>) return to_bf16(x);
  else return to_f16(x);
}

template <class T>
[[gnu::always_inline]] inline void add_tiles(const std::vector<const void*>& in, const std::vector<void*>& out,
                                             int64_t elements, double factor) {
  using A = decltype(widened(T{}));
  alignas(64) A sum[tile];
  alignas(64) T result[tile];
  const A f = A(factor);
  for (int64_t begin = 0; begin < elements; begin += tile) {
    const int64_t n = std::min(tile, elements - begin);
    const T* first = static_cast<const T*>(in[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = widened(first[i]);
    for (size_t r = 1; r < in.size(); ++r) {
      const T* next = static_cast<const T*>(in[r]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] += widened(next[i]);
    }
    for (int64_t i = 0; i < n; ++i) result[i] = narrowed<T>(sum[i] * f);
    for (void* o : out) std::memcpy(static_cast<T*>(o) + begin, result, size_t(n) * sizeof(T));
  }
}

[[gnu::always_inline]] inline void add(DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out,
                                       int64_t elements, double factor) {
  switch (dtype) {
    case DType::f32: return add_tiles<float>(in, out, elements, factor);
    case DType::f64: return add_tiles<double>(in, out, elements, factor);
    case DType::bf16: return add_tiles<bf16>(in, out, elements, factor);
    case DType::f16: return add_tiles<f16>(in, out, elements, factor);
    default: fail_with(ErrorKind::usage, "a reduction of {} numbers: only floats can be reduced", name_of(dtype));
  }
}

// The same code for wider vectors: additions stay apart, so that bits do not depend on which runs.
[[gnu::target("arch=x86-64-v3")]] void add_v3(DType dtype, const std::vector<const void*>& in,
                                              const std::vector<void*>& out, int64_t elements, double factor) {
  add(dtype, in, out, elements, factor);
}
[[gnu::target("arch=x86-64-v4,prefer-vector-width=512")]] void add_v4(DType dtype, const std::vector<const void*>& in,
                                                                      const std::vector<void*>& out, int64_t elements,
                                                                      double factor) {
  add(dtype, in, out, elements, factor);
}

[[gnu::target("arch=x86-64-v3")]] void add_two_v3(float* out, const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace

void add_two(float* out, const float* a, const float* b, size_t n) { add_two_v3(out, a, b, n); }

void add_in_order(DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out, int64_t elements,
                  double factor) {
  static const bool wide = __builtin_cpu_supports("x86-64-v4");
  (wide ? add_v4 : add_v3)(dtype, in, out, elements, factor);
}

}  // namespace sinter::dist
