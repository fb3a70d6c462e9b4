// The contract between the engine and its kernels: every kernel on every backend is `void(const KernelCall&)`.
// Plain data only, so that .cu files can read it. Operands belong to whoever makes the call.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"

namespace sinter {

constexpr int max_rank = 6;
constexpr int max_inputs = 8;  // of a call that dispatch makes; what only compiled steps contain may have more
constexpr int max_outputs = 4;

// A view of memory. Strides are in elements.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::f32;
  int32_t rank = 0;
  int64_t dims[max_rank] = {};
  int64_t strides[max_rank] = {};

  template <class T> T* as() const { return static_cast<T*>(data); }
};
// Inlined everywhere: kernels for several instruction sets include this, and the linker would keep any one copy.
[[gnu::always_inline]] inline int64_t numel(const TensorRef& t) {
  int64_t n = 1;
  for (int d = 0; d < t.rank; ++d) n *= t.dims[d];
  return n;
}
[[gnu::always_inline]] inline bool is_contiguous(const TensorRef& t) {
  int64_t expected = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    if (t.dims[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.dims[d];
  }
  return true;
}

// An op's attributes: one small trivially copyable struct per op (core/attrs.h), kept as bytes so that every call
// has the same type and two calls can be compared.
struct Attrs {
  alignas(8) unsigned char bytes[64] = {};

  template <class T> [[gnu::always_inline]] static Attrs of(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(bytes));
    Attrs a;
    std::memcpy(a.bytes, &value, sizeof(T));
#if defined(__has_builtin) && !defined(__CUDACC__)
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(
        reinterpret_cast<T*>(a.bytes));  // whose bytes are nobody's, and two calls are compared by theirs
#endif
#endif
    return a;
  }
  template <class T> const T& as() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(bytes));
    return *reinterpret_cast<const T*>(bytes);
  }
};

enum class MathMode : uint8_t { full, tf32 };  // how fp32 GEMMs are computed

struct KernelCall {
  const TensorRef* in = nullptr;  // operands belong to whoever makes the call
  const TensorRef* out = nullptr;
  int n_in = 0;
  int n_out = 0;
  int variant = 0;          // which member of a family (PointwiseFn, …): one kernel entry serves several ops
  uint32_t accumulate = 0;  // bit j: out[j] += result instead of out[j] = result
  MathMode math = MathMode::full;
  Attrs attrs;
  void* stream = nullptr;     // cudaStream_t on CUDA, unused on the CPU
  void* workspace = nullptr;  // at least what the op's workspace rule asked for
  int64_t workspace_bytes = 0;

  bool accumulates(int output) const { return (accumulate >> output) & 1u; }
};
static_assert(sizeof(KernelCall) <= 160, "a call is made every few microseconds, and a step has thousands");

using Kernel = void (*)(const KernelCall&);

}  // namespace sinter
