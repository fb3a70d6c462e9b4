// A string as JSON writes it.
#pragma once
#include <string>
#include <string_view>

namespace sinter {

inline void append_json_string(std::string& out, std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00", out += hex[c >> 4], out += hex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace sinter
