// Files that readers were fuzzed with (make fuzz): those that are right, and those that once were trouble or take a
// way through the reader of their own.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "support/readers.h"

namespace sinter {
namespace {

TEST(FuzzedFiles, AreReadOrRefused) {
  namespace fs = std::filesystem;
  for (const std::string& reader : reader_names()) {
    int read = 0, refused = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(SINTER_SOURCE_DIR "/tests/fuzz/seeds") / reader)) {
      SCOPED_TRACE(entry.path().string());
      std::ifstream file(entry.path(), std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(file), {}}, reason;
      ASSERT_NO_THROW(reason = read_as(reader, bytes));
      ++(reason.empty() ? read : refused);
      if (entry.path().filename().string().starts_with("right")) {
        EXPECT_EQ(reason, "");
      }
    }
    EXPECT_GT(read, 0) << "no file of kind " << reader << " is read";
    EXPECT_GT(refused + read, 1) << reader;
  }
}

}  // namespace
}  // namespace sinter
