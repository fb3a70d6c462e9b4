// Values on the command line: one, or several with commas.
#pragma once
#include <charconv>
#include <string>
#include <vector>

#include "core/check.h"

namespace sinter::cli {

inline std::vector<std::string> split(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    check(!parts.back().empty(), "{} \"{}\": an empty value; give one, or several with commas", flag, text);
    begin = end + 1;
  }
  return parts;
}

template <class T> T number(const std::string& flag, const std::string& text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "{} {}: not a {}", flag, text,
        std::is_integral_v<T> ? "whole number that fits in 64 bits" : "number");
  return value;
}

}  // namespace sinter::cli
