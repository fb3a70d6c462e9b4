// Numbers whose sum over ranks is known exactly. They are small integers that differ by rank, index and run, so that a
// number that is missing, added twice, of an earlier run or from another place makes a sum that is wrong.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "core/dtype.h"

namespace sinter::lab {

class Pattern {
 public:
  Pattern(DType dtype, int ranks, int rank, int64_t run);

  void fill(void* data, int64_t elements) const;
  std::string fault(const void* data, int64_t elements) const;  // the first sum that is wrong, or nothing

  static int64_t most_ranks(DType dtype);  // whose sums are exact

 private:
  static constexpr size_t levels = 16;
  DType dtype_;
  uint32_t run_;
  std::array<uint32_t, levels> mine_, sums_;  // bits of the numbers, by what the index gives
};

}  // namespace sinter::lab
