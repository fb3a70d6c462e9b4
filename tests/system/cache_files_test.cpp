// A cache on disk never gives wrong bytes and is never a reason to fail.
#include "system/cache_files.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/temporary_folder.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

class CacheFilesTest : public FolderTest {
 protected:
  size_t files() const { return size_t(std::distance(fs::directory_iterator(folder_), {})); }
};

std::string bytes_of(const fs::path& p) {
  std::ifstream f(p, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
void put(const fs::path& p, const std::string& bytes) { std::ofstream(p, std::ios::binary | std::ios::trunc) << bytes; }

TEST_F(CacheFilesTest, GiveBackWhatWasWritten) {
  CacheFiles cache(folder_ / "deep" / "er", "kernel");
  EXPECT_FALSE(cache.read("a"));
  std::string bytes("\0\x01\xff machine code", 16);
  cache.write("a", bytes);
  cache.write("b", "");
  EXPECT_EQ(cache.read("a"), bytes);
  EXPECT_EQ(cache.read("b"), "");
  EXPECT_FALSE(cache.read("c"));
  cache.write("a", "other");
  EXPECT_EQ(CacheFiles(folder_ / "deep" / "er", "kernel").read("a"), "other");
}

TEST_F(CacheFilesTest, DoNotBelieveADamagedFile) {
  CacheFiles cache(folder_, "kernel");
  const std::string good(1000, 'x');
  cache.write("key", good);
  const std::string whole = bytes_of(cache.path_of("key"));
  for (size_t length : {size_t(0), size_t(5), size_t(32), whole.size() - 1}) {
    put(cache.path_of("key"), whole.substr(0, length));
    EXPECT_FALSE(cache.read("key")) << "cut to " << length;
  }
  put(cache.path_of("key"), whole + "x");
  EXPECT_FALSE(cache.read("key")) << "grown";
  for (size_t at : {size_t(0), size_t(9), size_t(20), size_t(30), size_t(500), whole.size() - 1}) {
    std::string flipped = whole;
    flipped[at] = char(flipped[at] ^ 4);
    put(cache.path_of("key"), flipped);
    EXPECT_FALSE(cache.read("key")) << "byte " << at;
  }
  put(cache.path_of("another key"), whole);
  EXPECT_FALSE(cache.read("another key")) << "of another key";
  cache.write("key", good);
  EXPECT_EQ(cache.read("key"), good) << "replaced";
}

TEST_F(CacheFilesTest, SayOnceThatAFileIsDamaged) {
  CacheFiles cache(folder_, "kernel");
  for (const char* key : {"a", "b"}) {
    cache.write(key, "bytes");
    put(cache.path_of(key), "no");
  }
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.read("a"));
  EXPECT_FALSE(cache.read("b"));
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(CacheFilesTest, DoWithoutAFolderThatCannotBeWritten) {
  fs::create_directories(folder_);
  put(folder_ / "file", "in the way");
  for (const fs::path& where : {folder_ / "file" / "below", fs::path("/proc/no-such-place"), fs::path()}) {
    CacheFiles cache(where, "kernel");
    cache.write("key", "bytes");
    EXPECT_FALSE(cache.read("key")) << where;
  }
  if (getuid() == 0) return;  // root may write anywhere
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  CacheFiles cache(folder_, "kernel");
  cache.write("key", "bytes");
  EXPECT_FALSE(cache.read("key"));
}

// Processes that fill one folder at once, and read meanwhile, see whole files or none.
TEST_F(CacheFilesTest, AreFilledByProcessesAtOnce) {
  auto value = [](int key) { return std::string(size_t(20000 + key), char('a' + key)); };
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    pid_t pid = fork();
    if (pid == 0) {
      CacheFiles cache(folder_, "kernel");
      bool good = true;
      for (int round = 0; round < 50; ++round)
        for (int key = 0; key < 5; ++key) {
          if (auto found = cache.read(std::to_string(key))) good = good && *found == value(key);
          cache.write(std::to_string(key), value(key));
        }
      _exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  CacheFiles cache(folder_, "kernel");
  for (int key = 0; key < 5; ++key) EXPECT_EQ(cache.read(std::to_string(key)), value(key));
  EXPECT_EQ(files(), 5u) << "temporary files remain";
}

TEST(CacheFolder, FollowsTheEnvironment) {
  auto with = [](const char* own, const char* xdg, const char* home) {
    auto set = [](const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); };
    std::string before[3];
    const char* names[] = {"SINTER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    for (int i = 0; i < 3; ++i)
      if (const char* v = std::getenv(names[i])) before[i] = v;
    set(names[0], own), set(names[1], xdg), set(names[2], home);
    std::string found = cache_folder().string();
    for (int i = 0; i < 3; ++i) set(names[i], before[i].empty() ? nullptr : before[i].c_str());
    return found;
  };
  EXPECT_EQ(with("/a", "/b", "/c"), "/a");
  EXPECT_EQ(with(nullptr, "/b", "/c"), "/b/sinter");
  EXPECT_EQ(with("", nullptr, "/c"), "/c/.cache/sinter");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "");
}

TEST(Hash, KnowsThePublishedValues) {
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("a"), "d228cb696f1a8caf78912b704e4a8964");
  EXPECT_EQ(hash_name("foobar"), "343e1662793c64bf6f0d3597ba446f18");
}

}  // namespace
}  // namespace sinter
