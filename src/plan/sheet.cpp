#include "plan/sheet.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>

#include "core/check.h"
#include "system/units.h"

namespace sinter::plan {
namespace {

// Computes a formula while it copies it, with numbers in place of symbols.
class Reader {
 public:
  Reader(const std::string& formula, const Sheet& sheet) : text_(formula), sheet_(sheet) {}
  double run() {
    double value = sum();
    check(at_ == text_.size(), "formula {}: unexpected text at byte {}", text_, at_);
    return value;
  }
  std::string numbers;

 private:
  void copy(size_t bytes) {
    numbers += text_.substr(at_, bytes);
    at_ += bytes;
  }
  bool takes(const std::string& token) {
    size_t spaces = text_.find_first_not_of(' ', at_);
    if (spaces == std::string::npos || text_.compare(spaces, token.size(), token) != 0) return false;
    copy(spaces - at_ + token.size());
    while (at_ < text_.size() && text_[at_] == ' ') copy(1);
    return true;
  }
  double sum() {
    double value = product();
    while (true)
      if (takes("+")) value += product();
      else if (takes("-")) value -= product();
      else return value;
  }
  double product() {
    double value = factor();
    while (true)
      if (takes("·")) value *= factor();
      else if (takes("/")) value /= factor();
      else return value;
  }
  double factor() {
    double value = atom();
    return takes("²") ? value * value : value;
  }
  double closing(double value) {
    check(takes(")"), "formula {}: ) is missing at byte {}", text_, at_);
    return value;
  }
  double atom() {
    if (takes("√(")) return std::sqrt(closing(sum()));
    if (takes("ceil(")) return std::ceil(closing(sum()));
    if (takes("max(")) {
      double first = sum();
      check(takes(","), "formula {}: max takes two", text_);
      return closing(std::max(first, sum()));
    }
    if (takes("(")) return closing(sum());
    size_t end = at_;
    auto letter = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || in_greek(c); };
    while (end < text_.size() && letter(static_cast<unsigned char>(text_[end]))) ++end;
    std::string word = text_.substr(at_, end - at_);
    check(!word.empty(), "formula {}: a number or a symbol is missing at byte {}", text_, at_);
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      copy(word.size());
      return std::stod(word);
    }
    at_ = end;
    double value = sheet_.at(word);
    numbers += number_text(value);
    return value;
  }
  // Bytes of a Greek letter in UTF-8; those of · and ² and √ begin otherwise.
  static bool in_greek(unsigned char c) { return c == 0xCE || c == 0xCF || (c >= 0x80 && c <= 0xBF); }

  const std::string& text_;
  const Sheet& sheet_;
  size_t at_ = 0;
};

}  // namespace

void Sheet::given(const std::string& what, const std::string& symbol, double value, const std::string& unit) {
  set(symbol, value);
  lines.push_back({section_, what, symbol, "", "", value, unit});
}

double Sheet::add(const std::string& what, const std::string& symbol, const std::string& formula,
                  const std::string& unit) {
  Reader reader(formula, *this);
  double value = reader.run();
  set(symbol, value);
  lines.push_back({section_, what, symbol, formula, reader.numbers, value, unit});
  return value;
}

double Sheet::at(const std::string& symbol) const {
  auto it = values_.find(symbol);
  check(it != values_.end(), "no symbol {} in the sheet", symbol);
  return it->second;
}

double Sheet::value_of(const std::string& formula) const { return Reader(formula, *this).run(); }

std::string number_text(double x) {
  std::string text = fmt::format("{:.4g}", x);
  bool round = std::stod(text) == x, whole = x == std::floor(x) && std::abs(x) < 1e15, large = std::abs(x) >= 1e9;
  if (large ? whole && !round : whole || std::abs(x) >= 1e4) return grouped(std::llround(x));
  if (!round) text = fmt::format("{:.6g}", x);
  size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  return fmt::format("{}e{}", text.substr(0, exponent), std::stoi(text.substr(exponent + 1)));  // not e+09
}

}  // namespace sinter::plan
