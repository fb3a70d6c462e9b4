// What is written is read again, and what is not as the format promises is refused by name.
#include "system/safetensors.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>

#include "support/temporary_folder.h"
#include "support/values.h"

namespace sinter {
namespace {

namespace fs = std::filesystem;

class Safetensors : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::create_directories(folder_);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string with(const std::string& all) const {
    std::ofstream(at("file"), std::ios::binary) << all;
    return at("file");
  }
  std::string refusal(const std::string& all) const {
    std::string path = with(all);
    std::string text = error_of(ErrorKind::usage, [&] { SafetensorsFile file(path); });
    EXPECT_TRUE(mentions(text, {path})) << text;
    return text;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  static std::string file_of(const std::string& header, size_t data_bytes) {
    uint64_t length = header.size();
    std::string all(8, '\0');
    std::memcpy(all.data(), &length, 8);
    return all + header + std::string(data_bytes, 'x');
  }
};

const std::vector<StoredTensor> several = {{.name = "b", .type = "U8", .shape = {3}},
                                           {.name = "scalar", .type = "F64"},
                                           {.name = "a", .type = "F32", .shape = {2, 3}},
                                           {.name = "nothing", .type = "I64", .shape = {4, 0, 2}},
                                           {.name = "half/\"x\"", .type = "BF16", .shape = {1}}};

std::string counted(size_t n) {
  std::string bytes(n, '\0');
  std::iota(bytes.begin(), bytes.end(), 1);
  return bytes;
}

TEST_F(Safetensors, AreReadAsTheyWereWritten) {
  std::string data = counted(8 + 24 + 2 + 3);
  {
    SafetensorsWriter writer(at("file"), several, {{"step", "7"}});
    writer.write(data.substr(0, 11));  // bytes need not come tensor by tensor
    writer.write(data.substr(11));
    writer.finish();
  }
  SafetensorsFile file(at("file"));
  std::vector<std::string> names;
  int64_t end = 0;
  for (const StoredTensor& t : file.tensors()) {
    names.push_back(t.name);
    EXPECT_EQ(file.bytes(t), data.substr(size_t(t.begin), size_t(t.bytes()))) << t.name;
    EXPECT_EQ(t.begin % safetensors_width(t.type), 0) << t.name;
    EXPECT_EQ(t.begin, end);
    end = t.end;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"nothing", "scalar", "a", "half/\"x\"", "b"}));  // wide first, then by name
  EXPECT_EQ(file.at("a").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.at("a").type, "F32");
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(file.metadata().at("step"), "7");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { file.at("c"); }), {at("file"), "no tensor c"}));
}

// Byte for byte what the format's own library writes of these.
TEST_F(Safetensors, AreWrittenAsOthersWriteThem) {
  SafetensorsWriter writer(at("file"), {{.name = "b", .type = "F32", .shape = {1}}, {.name = "a", .type = "I64"}});
  writer.write(counted(12));
  writer.finish();
  std::string header = R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  ASSERT_EQ(header.size() % 8, 3u);
  EXPECT_EQ(text_of(at("file")), file_of(header + "     ", 0) + counted(12));
}

TEST_F(Safetensors, OfOtherWritersMayDiffer) {
  // Not padded, not in the order of bytes, and spaces where JSON allows them.
  SafetensorsFile file(with(file_of(R"({ "b" : {"data_offsets":[2,3], "shape":[1],"dtype":"U8"},
      "a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})",
                                    3)));
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.bytes(file.at("b")), "x");
  EXPECT_TRUE(SafetensorsFile(with(file_of("{}", 0))).tensors().empty());
}

TEST_F(Safetensors, ThatBreakAPromiseAreRefused) {
  auto tensor = [](const std::string& fields) { return R"({"t":{)" + fields + "}}"; };
  auto byte = [](const std::string& name, const std::string& offsets) {
    return '"' + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + offsets + "]}";
  };
  struct Case {
    std::string header;
    size_t data;
    std::vector<std::string> words;
  };
  const std::string f = R"("dtype":"F32","shape":[2],)";
  for (const Case& c : std::vector<Case>{
           {" {}", 0, {"does not begin with {", "byte 8"}},
           {"[]", 0, {"does not begin with {"}},
           {"{", 0, {"not valid JSON"}},
           {"{} x", 0, {"not valid JSON", "byte 12"}},
           {std::string("{}\0 ", 4), 0, {"byte 10", "is 0"}},
           {R"({"t":1})", 0, {"t is a number"}},
           {R"({"t":[]})", 0, {"t holds a list"}},
           {R"({"t":null})", 0, {"t is null"}},
           {R"({"__metadata__":{"x":1}})", 0, {"__metadata__", "a number"}},
           {R"({"__metadata__":{"x":[]}})", 0, {"__metadata__", "a list"}},
           {R"({"__metadata__":{"x":"1","x":"2"}})", 0, {"__metadata__ has x twice"}},
           {tensor(f), 0, {"not valid JSON"}},
           {tensor(R"("dtype":"F32","shape":[2])"), 8, {"t has no data_offsets"}},
           {tensor(R"("dtype":"F32","data_offsets":[0,8])"), 8, {"t has no shape"}},
           {tensor(R"("shape":[2],"data_offsets":[0,8])"), 8, {"t has no dtype"}},
           {tensor(f + R"("data_offsets":[0,8],"more":1)"), 8, {"t has a field more"}},
           {tensor(f + R"("dtype":"F32","data_offsets":[0,8])"), 8, {"t has dtype twice"}},
           {tensor(f + R"("data_offsets":[0,8,9])"), 8, {"3 data_offsets"}},
           {tensor(f + R"("data_offsets":[0,-8])"), 8, {"a negative number"}},
           {tensor(f + R"("data_offsets":[0,8.0])"), 8, {"not whole"}},
           {tensor(f + R"("data_offsets":[[0,8]])"), 8, {"holds a list"}},
           {tensor(f + R"("data_offsets":{"0":8})"), 8, {"holds an object"}},
           {tensor(f + R"("data_offsets":"0")"), 8, {"a text"}},
           {tensor(f + R"("data_offsets":[0,18446744073709551615])"), 8, {"more than any file"}},
           {tensor(f + R"("data_offsets":[0,99999999999999999999])"), 8, {"not whole"}},
           {tensor(R"("dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2])"), 2, {"F8_E4M3", "does not read"}},
           {tensor(f + R"("data_offsets":[0,4])"), 4, {"t has 4 bytes", "ask for 8"}},
           {tensor(f + R"("data_offsets":[8,0])"), 8, {"[8, 0)"}},
           {tensor(f + R"("data_offsets":[4,12])"), 12, {"[4, 12)", "ends at 0"}},
           {tensor(f + R"("data_offsets":[0,8])"), 9, {"8 bytes", "has"}},
           {tensor(f + R"("data_offsets":[0,8])"), 7, {"8 bytes", "has"}},
           {tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0, {"more than any file"}},
           {"{" + byte("t", "0,1") + "," + byte("t", "1,2") + "}", 2, {"has t twice"}},
           {"{" + byte("s", "0,1") + "," + byte("t", "0,1") + "}", 2, {"has the bytes [0, 1)"}},
           {"{\"t\xff\":1}", 0, {"not valid JSON"}},
           {"{\"a\":" + std::string(1 << 20, '['), 0, {"holds a list"}},
           {"{\"a\":{\"b\":{", 0, {"field b"}},
       })
    EXPECT_TRUE(mentions(refusal(file_of(c.header, c.data)), c.words)) << c.header.substr(0, 200);

  EXPECT_TRUE(mentions(refusal("1234567"), {"7 bytes"}));
  EXPECT_TRUE(mentions(refusal(""), {"0 bytes"}));
  EXPECT_TRUE(mentions(refusal(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)), {"100000001", "another kind of file"}));
  EXPECT_TRUE(mentions(refusal(std::string("\x03\0\0\0\0\0\0\0{}", 10)), {"cut off in its header"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { SafetensorsFile file(at("none")); }), {at("none"), "check"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { SafetensorsFile file(folder_.string()); }), {"a folder"}));
}

// Whatever has happened to a file, it is refused, or all that it says lies inside it.
TEST_F(Safetensors, MayBeDamagedAnywhere) {
  {
    SafetensorsWriter writer(at("whole"), several, {{"step", "7"}});
    writer.write(counted(8 + 24 + 2 + 3));
    writer.finish();
  }
  std::string whole = text_of(at("whole"));
  int read = 0, refused = 0;
  auto try_reading = [&](const std::string& all) {
    try {
      SafetensorsFile file(with(all));
      int64_t sum = 0, bytes = 0;
      for (const StoredTensor& t : file.tensors())
        for (char c : file.bytes(t)) sum += c, ++bytes;
      ASSERT_EQ(size_t(bytes) + file.head().size(), all.size()) << sum;
      ++read;
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::usage) << e.what();
      ++refused;
    }
  };
  size_t head = whole.size() - (8 + 24 + 2 + 3);
  for (size_t byte = 0; byte < head; ++byte)
    for (int bit : {int(byte % 8), int(byte / 8 % 8)}) {
      std::string damaged = whole;
      damaged[byte] = char(damaged[byte] ^ (1 << bit));
      try_reading(damaged);
    }
  EXPECT_GT(read, 0);  // names and spaces are anybody's
  EXPECT_GT(refused, 300);
  read = 0;
  for (size_t length = 0; length < whole.size(); ++length) try_reading(whole.substr(0, length));
  EXPECT_EQ(read, 0);
}

TEST_F(Safetensors, AreWrittenWholeOrNotAtAll) {
  {
    SafetensorsWriter writer(at("file"), several);
    writer.write(counted(5));
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { writer.finish(); }), {at("file"), "lack 32 bytes"}));
    EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { writer.write(counted(33)); }), {at("file"), "33 bytes"}));
  }
  EXPECT_FALSE(fs::exists(at("file")));
  with("somebody's");
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { SafetensorsWriter writer(at("file"), several); }),
                       {at("file"), "exists"}));
  EXPECT_EQ(text_of(at("file")), "somebody's");
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [&] {
                                  SafetensorsWriter writer(at("f"), {{"x", "F3", {1}}});
                                }),
                       {"x of type F3"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage,
                                [&] {
                                  SafetensorsWriter writer(at("f"), {{"x", "F32", {1}}, {"x", "U8", {1}}});
                                }),
                       {"second", "x"}));
  EXPECT_FALSE(fs::exists(at("f")));
}

TEST(SafetensorsTypes, AreOurs) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    EXPECT_EQ(dtype_of_safetensors(safetensors_type(t)), t);
    EXPECT_EQ(safetensors_width(safetensors_type(t)), size_of(t));
  }
  EXPECT_EQ(dtype_of_safetensors("U16"), std::nullopt);
  EXPECT_EQ(safetensors_width("U16"), 2);
}

}  // namespace
}  // namespace sinter
