// A test with a folder of its own, which is gone before and after it.
#pragma once
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sinter {

class FolderTest : public testing::Test {
 protected:
  void SetUp() override { remove(); }
  void TearDown() override { remove(); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("sinter-test-" + std::to_string(getpid()));
  std::error_code ignored_;

 private:
  void remove() {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, std::filesystem::perm_options::add,
                                 ignored_);
    std::filesystem::remove_all(folder_);
  }
};

}  // namespace sinter
