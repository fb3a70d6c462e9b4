// Files that scripts of tools/ have written for tests to read.
#pragma once
#include <string>

namespace sinter {

inline std::string fixture_path(const std::string& file) {
  return std::string(SINTER_SOURCE_DIR) + "/tests/fixtures/" + file;
}

}  // namespace sinter
