// Bytes that a model has made, as text that is safe to show.
#pragma once
#include <string>
#include <string_view>

namespace sinter::lab {

// UTF-8 stays as it is. Bytes that are none, and control characters but for new lines and tabs, which a terminal would
// obey, become \x1b. Bytes may come one by one: a character is held back until it is whole.
class SafeText {
 public:
  std::string add(std::string_view bytes);
  std::string end();  // what never became a character

 private:
  std::string take(bool all);
  std::string pending_;
};
std::string safe_text(std::string_view bytes);

// Text that comes piece by piece, up to where a stop text begins.
class StopText {
 public:
  explicit StopText(std::string stop) : stop_(std::move(stop)) {}  // empty: it never does
  std::string add(std::string_view more);                          // what is certain not to belong to the stop text
  std::string end();                                               // what was held back all the same
  bool found() const { return found_; }

 private:
  std::string stop_, held_;
  bool found_ = false;
};

}  // namespace sinter::lab
