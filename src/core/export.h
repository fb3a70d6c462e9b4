// What the files that other programs read have in common: strings in JSON, and the time of day of what the steady clock
// saw.
#pragma once
#include <chrono>
#include <cstdint>
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

// The difference of the clocks is taken once, so that everything one process writes agrees.
inline int64_t unix_ns(int64_t steady_ns) {
  auto ns = [](auto now) {
    return int64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count());
  };
  static const int64_t difference = ns(std::chrono::system_clock::now()) - ns(std::chrono::steady_clock::now());
  return steady_ns + difference;
}

}  // namespace sinter
