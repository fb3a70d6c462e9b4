// A line of source. (Place, which clang before 16 does not have.)
#pragma once

namespace sinter {

struct Place {
  const char* file = "";
  int line = 0;

  // As a default argument: where the call is written.
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace sinter
