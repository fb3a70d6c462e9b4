// Element types. Plain data: included by kernels on every backend.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sinter {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };
constexpr int dtype_count = 8;

// constexpr functions are callable from device code without a macro: nvcc compiles with --expt-relaxed-constexpr.
constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8:
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f64: return "fp64";
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::i64: return "int64";
    case DType::i32: return "int32";
    case DType::u8: return "uint8";
    case DType::boolean: return "bool";
  }
  return "?";
}

constexpr bool is_float(DType t) { return t <= DType::f16; }
constexpr bool is_16bit(DType t) { return t == DType::bf16 || t == DType::f16; }

// The type that holds both: wider floats win, two different 16-bit floats meet in fp32, floats win over integers.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_16bit(a) && is_16bit(b)) return DType::f32;
  return a < b ? a : b;
}

}  // namespace sinter
