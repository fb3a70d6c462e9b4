// Files that scripts of tools/ have written for tests to read.
#pragma once
#include <fmt/format.h>
#include <string>

namespace sinter {

inline std::string fixture_path(const std::string& file) {
  return fmt::format("{}/tests/fixtures/{}", SINTER_SOURCE_DIR, file);
}

}  // namespace sinter
