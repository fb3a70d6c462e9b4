// A line of source. (The standard library has one too, but not for clang before 16.)
#pragma once

namespace sinter {

struct Place {
  const char* file = "";
  int line = 0;

  // As a default argument: where the call is written.
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace sinter
