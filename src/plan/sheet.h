// Equations as text: what is shown is what is computed. A sheet holds symbols, those that are given and those that
// equations define, and can say of every result by which formula and from which numbers it came.
//
// A formula has + - · / ², √( ), ceil( ), max( , ), parentheses, numbers and symbols (letters, digits, _; also Greek).
#pragma once
#include <map>
#include <string>
#include <vector>

namespace sinter::plan {

class Sheet {
 public:
  struct Line {
    std::string section, what, symbol;
    std::string formula, numbers;  // "L·3·d·f", "48·3·1,600·6,400"; empty: it was given
    double value;
    std::string unit;  // "B", "FLOP", "s", "tokens", …; empty: a count
  };

  void begin(const std::string& section) { section_ = section; }
  void given(const std::string& what, const std::string& symbol, double value, const std::string& unit = "");
  double add(const std::string& what, const std::string& symbol, const std::string& formula,
             const std::string& unit = "");
  void set(const std::string& symbol, double value) { values_[symbol] = value; }  // without a line
  double at(const std::string& symbol) const;
  double value_of(const std::string& formula) const;  // without a line

  std::vector<Line> lines;

 private:
  std::string section_;
  std::map<std::string, double> values_;
};

std::string number_text(double x);  // "219,848,638,464", "4.6e14", "0.0123"

}  // namespace sinter::plan
