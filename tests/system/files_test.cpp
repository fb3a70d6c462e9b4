// A file that people keep is there whole or not at all, and a failure leaves the old one and nothing else.
#include "system/files.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "support/temporary_folder.h"
#include "support/values.h"
#include "system/streams.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

class FilesTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::create_directories(folder_);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  size_t files() const { return size_t(std::distance(fs::directory_iterator(folder_), {})); }
};

std::string text_of(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// In a child, as limits hold for a whole process: 0 if the work was refused with these words.
int refused_in_child(const std::function<void()>& before, const std::function<void()>& work,
                     const std::vector<std::string>& words) {
  pid_t child = fork();
  if (child == 0) {
    before();
    std::string message = refusal(work);
    bool good = !message.empty();
    for (const std::string& w : words) good = good && message.find(w) != std::string::npos;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FilesTest, AreWrittenAndReplaced) {
  std::string large(1 << 20, 'x');
  for (Durable durable : {Durable::no, Durable::yes})
    for (const std::string& text : {std::string("first"), large, std::string(), std::string("\0a", 2)}) {
      write_file(at("file"), text, durable);
      EXPECT_EQ(text_of(at("file")), text);
      EXPECT_EQ(files(), 1u);
    }
}

TEST_F(FilesTest, HaveNoFolderNamedInTheirPath) {
  fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_file("file", "here");
  fs::current_path(before);
  EXPECT_EQ(text_of(at("file")), "here");
}

TEST_F(FilesTest, StayAsTheyWereWhenTheDiskIsFull) {
  write_file(at("file"), "old");
  auto small_files_only = [] {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  std::string large(10000, 'x');
  EXPECT_EQ(refused_in_child(small_files_only, [&] { write_file(at("file"), large); }, {at("file"), "File too large"}),
            0);
  EXPECT_EQ(text_of(at("file")), "old");
  EXPECT_EQ(files(), 1u) << "a temporary file remains";
}

TEST_F(FilesTest, CannotTakeTheNameOfAFolder) {
  fs::create_directories(at("folder"));
  std::string message = refusal([&] { write_file(at("folder"), "text"); });
  EXPECT_TRUE(mentions(message, {at("folder"), "directory"})) << message;
  EXPECT_TRUE(fs::is_directory(at("folder")));
  EXPECT_EQ(files(), 1u) << "a temporary file remains";
  EXPECT_TRUE(mentions(refusal([&] { check_writable("--json", at("folder")); }), {"--json", at("folder"), "folder"}));
}

TEST_F(FilesTest, NeedAFolderThatCanBeWritten) {
  std::string message = refusal([&] { write_file(at("none/file"), "text"); });
  EXPECT_TRUE(mentions(message, {at("none/file"), "No such file"})) << message;
  message = refusal([&] { check_writable("--json", at("none/file")); });
  EXPECT_TRUE(mentions(message, {"--json", at("none/file"), "folder that exists"})) << message;
  check_writable("--json", at("file"));
  EXPECT_EQ(files(), 0u) << "asking leaves nothing";
  if (getuid() == 0) return;  // root may write anywhere
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  message = refusal([&] { write_file(at("file"), "text"); });
  EXPECT_TRUE(mentions(message, {at("file"), "Permission denied"})) << message;
}

TEST_F(FilesTest, AreWrittenWhereLinksPoint) {
  fs::create_directories(at("other"));
  write_file(at("other/file"), "old");
  fs::create_symlink("other/file", at("link"));
  fs::create_symlink("link", at("link to link"));
  fs::create_symlink("other/new", at("dangling"));
  write_file(at("link to link"), "new");
  write_file(at("dangling"), "made");
  EXPECT_EQ(text_of(at("other/file")), "new");
  EXPECT_EQ(text_of(at("other/new")), "made");
  for (const char* link : {"link", "link to link", "dangling"}) EXPECT_TRUE(fs::is_symlink(at(link))) << link;
  EXPECT_EQ(files(), 4u);
}

TEST_F(FilesTest, ThatAreSpecialAreWrittenAsTheyAre) {
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(is_special(at("pipe")) && is_special("/dev/null") && is_special("/dev/stdout"));
  EXPECT_FALSE(is_special(folder_) || is_special(at("none")));
  int fd = open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file(at("pipe"), "through");
  char text[16] = {};
  EXPECT_EQ(read(fd, text, sizeof text), 7);
  close(fd);
  EXPECT_STREQ(text, "through");
  EXPECT_EQ(files(), 1u);
  write_file("/dev/null", "away");
  check_writable("--json", "/dev/full");
  std::string message = refusal([] { write_file("/dev/full", "text"); });
  EXPECT_TRUE(mentions(message, {"/dev/full", "No space"})) << message;
}

// A record sent to /dev/stdout must not replace the file that a shell has put there, nor what was written to it before.
TEST_F(FilesTest, StandardOutputKeepsWhatIsThere) {
  pid_t child = fork();
  if (child == 0) {
    int fd = open(at("out").c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(fd, STDOUT_FILENO);
    write_stdout("before ");
    write_file("/dev/stdout", "record ");
    write_stdout("after");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(text_of(at("out")), "before record after");
}

TEST_F(FilesTest, OfSeveralProcessesAreOneOfThem) {
  std::vector<pid_t> children;
  for (char c : {'a', 'b', 'c'}) {
    pid_t child = fork();
    if (child == 0) {
      for (int i = 0; i < 50; ++i) write_file(at("file"), std::string(20000, c), Durable::no);
      _exit(0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) waitpid(child, nullptr, 0);
  std::string text = text_of(at("file"));
  EXPECT_EQ(text, std::string(20000, text[0]));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace sinter
