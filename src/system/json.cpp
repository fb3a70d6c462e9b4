#include "system/json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace sinter {
namespace {

constexpr size_t largest_file = size_t(256) << 20;  // /dev/zero never ends

// How deep lists and objects lie in each other. Counted before anything is built of them; the text may be any.
int64_t depth_of(std::string_view text) {
  int64_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted && c == '\\') ++i;
    else if (c == '"') quoted = !quoted;
    else if (quoted) continue;
    else if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    else if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

}  // namespace

std::string json_text_of(const std::string& path) {
  std::error_code unknown;  // opening it will say
  check(!std::filesystem::is_directory(path, unknown), "{}: is a folder, not a file", path);
  std::ifstream in(path, std::ios::binary);
  check(bool(in), "{}: cannot be opened ({}); check the path", path, std::strerror(errno));
  std::string text;
  std::vector<char> part(1 << 16);
  while (in.read(part.data(), std::streamsize(part.size())), in.gcount() > 0) {
    text.append(part.data(), size_t(in.gcount()));
    check(text.size() <= largest_file, "{}: larger than 256 MiB, which no record or configuration of sinter's is",
          path);
  }
  return text;
}

Json parse_json_file(const std::string& path) { return parse_json(json_text_of(path), path); }

Json parse_json(const std::string& text, const std::string& path) {
  check(!text.empty(), "{}: is empty; it should hold JSON", path);
  int64_t depth = depth_of(text);
  check(depth <= deepest_json, "{}: nested {} levels deep; sinter reads at most {}, and its records have fewer than 10",
        path, depth, deepest_json);
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    fail_with(ErrorKind::usage, "{}: not valid JSON: {}", path, message_of(e));
  }
}

void json_lacks_a_field() { throw Json::out_of_range::create(403, "a field is not there", nullptr); }

std::string message_of(const Json::exception& e) {
  std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: …"
  size_t start = what.find("] ");
  return start == std::string::npos ? what : what.substr(start + 2);
}

}  // namespace sinter
