#include "lab/allreduce/pattern.h"

#include <bit>
#include <fmt/format.h>

#include "core/half.h"

namespace sinter::lab {
namespace {

// Up to here every integer is one of the type's numbers.
int64_t exact_up_to(DType t) { return t == DType::bf16 ? 1 << 8 : t == DType::f16 ? 1 << 11 : 1 << 24; }

uint32_t bits_of(DType t, float x) {
  return t == DType::bf16 ? to_bf16(x).bits : t == DType::f16 ? to_f16(x).bits : std::bit_cast<uint32_t>(x);
}
float from_bits(DType t, uint32_t bits) {
  return t == DType::bf16  ? to_float(bf16{uint16_t(bits)})
         : t == DType::f16 ? to_float(f16{uint16_t(bits)})
                           : std::bit_cast<float>(bits);
}

// One of 16, in an order that does not repeat: the upper bits of a product (Fibonacci hashing).
inline uint32_t level_of(int64_t index, uint32_t run) {
  return (uint32_t(index) * 2654435769u + run * 0x5bd1e995u) >> 28;
}

// What a rank has at a level. Ranks and levels are mixed: where one follows from the other by adding, all sums of some
// numbers of ranks are the same.
inline uint32_t number_of(uint32_t level, int rank, uint32_t most) {
  uint32_t h = (level + 1) * 2654435769u ^ uint32_t(rank + 1) * 0x85ebca6bu;
  h = (h ^ h >> 15) * 0x2c1b3c6du;
  return h >> 16 & most;
}

}  // namespace

int64_t Pattern::most_ranks(DType dtype) { return exact_up_to(dtype); }

Pattern::Pattern(DType dtype, int ranks, int rank, int64_t run) : dtype_(dtype), run_(uint32_t(run)) {
  uint32_t most = 1;  // of a number; a power of two less one
  while (most < levels - 1 && int64_t(2 * most + 1) * ranks <= exact_up_to(dtype)) most = 2 * most + 1;
  for (uint32_t level = 0; level < levels; ++level) {
    uint32_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += number_of(level, r, most);
    mine_[level] = bits_of(dtype, float(number_of(level, rank, most)));
    sums_[level] = bits_of(dtype, float(sum));
  }
}

void Pattern::fill(void* data, int64_t elements) const {
  auto write = [&](auto* to) {
    for (int64_t i = 0; i < elements; ++i) to[i] = std::decay_t<decltype(*to)>(mine_[level_of(i, run_)]);
  };
  if (size_of(dtype_) == 2) write(static_cast<uint16_t*>(data));
  else write(static_cast<uint32_t*>(data));
}

std::string Pattern::fault(const void* data, int64_t elements) const {
  auto find = [&](const auto* from) -> std::string {
    int64_t first = elements, wrong = 0;
    for (int64_t i = 0; i < elements; ++i)
      if (from[i] != sums_[level_of(i, run_)]) first = std::min(first, i), ++wrong;
    if (wrong == 0) return "";
    return fmt::format("element {} is {}, not {}; {} of {} are wrong", first, from_bits(dtype_, from[first]),
                       from_bits(dtype_, sums_[level_of(first, run_)]), wrong, elements);
  };
  return size_of(dtype_) == 2 ? find(static_cast<const uint16_t*>(data)) : find(static_cast<const uint32_t*>(data));
}

}  // namespace sinter::lab
