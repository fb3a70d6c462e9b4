// Storage types of the two 16-bit floats and their conversions on the host. Bit-compatible
// with __nv_bfloat16 and __half.
#pragma once
#include <bit>
#include <cstdint>

namespace sinter {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

// Always inlined: these are also used by files compiled for newer instruction sets (Note [Two instruction sets] in
// backend/cpu/isa.h), whose out-of-line copies must never be picked by the linker.
[[gnu::always_inline]] inline float to_float(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
[[gnu::always_inline]] inline float to_float(f16 x) { return float(std::bit_cast<_Float16>(x.bits)); }

// Round to nearest, ties to even; NaN stays NaN (quiet).
[[gnu::always_inline]] inline bf16 to_bf16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  uint32_t nan = (u >> 16) | 0x40u;
  return {uint16_t((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}
[[gnu::always_inline]] inline f16 to_f16(float x) { return {std::bit_cast<uint16_t>(_Float16(x))}; }

}  // namespace sinter
