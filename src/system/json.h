// JSON as sinter reads and writes it.
#pragma once

// A field that is asked for with [] and is not there is the file's fault: an exception, as with at(), and no abort.
namespace sinter {
[[noreturn]] void json_lacks_a_field();
}
#define JSON_ASSERT(holds) (static_cast<bool>(holds) ? void() : ::sinter::json_lacks_a_field())
#include <nlohmann/json.hpp>
#include <string>

namespace sinter {

// Records keep the order in which their fields were written, for the eyes of people.
using Json = nlohmann::ordered_json;

// What a file holds. Refuses one that is broken, saying where, and one that is too large, or nested too deeply, to be
// what sinter reads: whoever walks a document does so by recursion, and must not run out of stack.
Json parse_json_file(const std::string& path);
// The same in parts, for who must know that the text is whole before it is believed.
std::string json_text_of(const std::string& path);
Json parse_json(const std::string& text, const std::string& path);
constexpr int deepest_json = 200;

std::string message_of(const Json::exception& e);  // without the library's own prefix

}  // namespace sinter
