// Files that people write: every fault is told with file, line, field and reason, and no text makes the reader crash.
#include "system/json_fields.h"

#include <fstream>
#include <random>

#include "support/temporary_folder.h"
#include "support/values.h"

namespace sinter {
namespace {

class JsonFieldsFile : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    std::filesystem::create_directories(folder_);
  }
  std::string file(const std::string& text) const {
    std::string path = (folder_ / "f.json").string();
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(JsonFieldsFile, ReadsWhatIsThere) {
  JsonFields j(
      file(R"({"name": "a", "n": 3, "x": 0.5, "list": [1, 2], "on": true, "o": {"n": 7}, "all": [{"n": 1}]})"));
  EXPECT_EQ(j.text("name"), "a");
  EXPECT_EQ(j.whole("n", 0, 10), 3);
  EXPECT_EQ(j.number("x", 0, 1), 0.5);
  EXPECT_EQ(j.numbers("list", 0, 9), (std::vector<double>{1, 2}));
  EXPECT_TRUE(j.flag("on", false));
  EXPECT_EQ(j.object("o").whole("n", 0, 10), 7);
  EXPECT_EQ(j.objects("all").size(), 1u);
  EXPECT_EQ(j.whole("absent", 0, 10, 4), 4);
  j.finish();
}

TEST_F(JsonFieldsFile, FaultsNameLineFieldAndReason) {
  std::string path = file("{\n  \"a\": {\n    \"n\": 3\n  },\n  \"b\": {\n    \"n\": -1,\n    \"m\": 2\n  }\n}\n");
  auto refused = [&](const std::function<void(JsonFields&)>& read, const std::vector<std::string>& parts) {
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                  [&] {
                                    JsonFields j(path);
                                    read(j);
                                  }),
                         parts));
  };
  refused([](JsonFields& j) { j.object("b").whole("n", 0, 9); }, {"f.json, line 6, b.n", "-1", "between 0 and 9"});
  refused([](JsonFields& j) { j.object("a").text("n"); }, {"line 3, a.n", "not text"});
  refused([](JsonFields& j) { j.number("a", 0, 1); }, {"line 2, a", "not a number"});
  refused([](JsonFields& j) { j.text("c"); }, {"c", "missing"});
  refused(
      [](JsonFields& j) {
        JsonFields b = j.object("b");
        b.has("n");
        b.finish();
      },
      {"line 7, b.m", "unknown"});
  path = file("[1]");
  refused([](JsonFields&) {}, {"f.json", "object"});
  path = file("{\"a\": }");
  refused([](JsonFields&) {}, {"f.json", "line 1"});
}

}  // namespace
}  // namespace sinter
