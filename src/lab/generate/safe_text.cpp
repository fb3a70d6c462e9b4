#include "lab/generate/safe_text.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

namespace sinter::lab {
namespace {

// Bytes of the character that a text begins with; 0: it begins with none; −1: the text ends within one.
int character_at(std::string_view text) {
  auto byte = [&](size_t i) { return uint8_t(text[i]); };
  uint8_t first = byte(0);
  if (first < 0x80) return 1;
  int length = first >= 0xc2 && first < 0xe0   ? 2
               : first >= 0xe0 && first < 0xf0 ? 3
               : first >= 0xf0 && first < 0xf5 ? 4
                                               : 0;
  if (length == 0) return 0;
  for (size_t i = 1; i < size_t(length); ++i) {
    if (i == text.size()) return -1;
    // The second byte says whether a shorter form exists, or the character does not.
    uint8_t low = first == 0xe0 && i == 1 ? 0xa0 : first == 0xf0 && i == 1 ? 0x90 : 0x80;
    uint8_t high = first == 0xed && i == 1 ? 0x9f : first == 0xf4 && i == 1 ? 0x8f : 0xbf;
    if (byte(i) < low || byte(i) > high) return 0;
  }
  return length;
}

bool is_control(std::string_view character) {
  auto first = uint8_t(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
  return first == 0xc2 && uint8_t(character[1]) < 0xa0;
}

}  // namespace

std::string SafeText::take(bool all) {
  std::string out;
  std::string_view left = pending_;
  while (!left.empty()) {
    int length = character_at(left);
    if (length < 0 && !all) break;
    std::string_view now = left.substr(0, size_t(std::max(length, 1)));
    if (length > 0 && !is_control(now)) out += now;
    else
      for (char c : now) out += fmt::format("\\x{:02x}", uint8_t(c));
    left.remove_prefix(now.size());
  }
  pending_ = std::string(left);
  return out;
}

std::string SafeText::add(std::string_view bytes) {
  pending_ += bytes;
  return take(false);
}
std::string SafeText::end() { return take(true); }

std::string safe_text(std::string_view bytes) {
  SafeText text;
  std::string safe = text.add(bytes);
  return safe + text.end();
}

std::string StopText::add(std::string_view more) {
  if (found_) return "";
  held_ += more;
  if (stop_.empty()) return std::exchange(held_, "");
  size_t certain = held_.find(stop_);
  found_ = certain != std::string::npos;
  if (!found_) {  // the longest end that the stop text begins with may become it
    size_t begun = std::min(held_.size(), stop_.size() - 1);
    while (begun > 0 && held_.compare(held_.size() - begun, begun, stop_, 0, begun) != 0) --begun;
    certain = held_.size() - begun;
  }
  std::string out = held_.substr(0, certain);
  held_ = found_ ? "" : held_.substr(certain);
  return out;
}
std::string StopText::end() { return std::exchange(held_, ""); }

}  // namespace sinter::lab
