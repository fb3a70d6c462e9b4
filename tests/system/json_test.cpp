// A JSON file is read, or refused by name and with the reason.
#include "system/json.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temporary_folder.h"

namespace sinter {
namespace {

class JsonFile : public FolderTest {
 protected:
  std::string with(const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::string path = (folder_ / "file.json").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string refusal(const std::string& path) {
    try {
      parse_json_file(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::usage);
      return e.what();
    }
    return "none";
  }
  static std::string nested(int depth) { return std::string(size_t(depth), '[') + std::string(size_t(depth), ']'); }
};

TEST_F(JsonFile, KeepsTheOrderOfItsFields) {
  EXPECT_EQ(parse_json_file(with(R"({"b": 1, "a": [2]})")).dump(), R"({"b":1,"a":[2]})");
}

TEST_F(JsonFile, MayBeNestedOnlySoDeep) {
  EXPECT_EQ(parse_json_file(with(nested(deepest_json))).size(), 1u);
  std::string text = refusal(with(nested(deepest_json + 1)));
  EXPECT_NE(text.find("file.json: nested 201 levels"), std::string::npos) << text;
  text = refusal(with(R"({"a": )" + nested(300000) + "}"));
  EXPECT_NE(text.find("nested 300001 levels"), std::string::npos) << text;
  text = refusal(with(std::string(300000, '[')));  // and never closed
  EXPECT_NE(text.find("nested 300000 levels"), std::string::npos) << text;
  // Siblings lie beside each other, and brackets in text are text.
  std::string siblings = "[0", brackets(1000, '[');
  for (int i = 0; i < 1000; ++i) siblings += ",[{}]";
  EXPECT_EQ(parse_json_file(with(siblings + "]")).size(), 1001u);
  EXPECT_EQ(parse_json_file(with(R"(["\")" + brackets + R"(\\", 1])")).size(), 2u);
}

TEST_F(JsonFile, IsRefusedByNameWithTheReason) {
  auto says = [](const std::string& text, const std::string& reason) {
    EXPECT_NE(text.find("file.json: "), std::string::npos) << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  };
  says(refusal(with("")), "empty");
  says(refusal(with("{\"a\":\n NaN}")), "line 2");
  says(refusal(with("[1e999]")), "number overflow");
  says(refusal(with(std::string("\0\xff\x80{", 4))), "not valid JSON");
  std::string path = with("{}");
  std::filesystem::remove(path);
  says(refusal(path), "No such file");
  std::filesystem::create_directory(path);
  says(refusal(path), "is a folder");
}

TEST_F(JsonFile, ThatNeverEndsIsRefused) {
  EXPECT_NE(refusal("/dev/zero").find("/dev/zero: larger than"), std::string::npos);
}

}  // namespace
}  // namespace sinter
