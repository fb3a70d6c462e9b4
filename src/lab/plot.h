// Bar and line charts as SVG, and as an HTML page that also holds the tables. Nothing is fetched from anywhere.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lab/table.h"

namespace sinter::lab {

struct Series {
  std::string name;
  std::vector<std::optional<double>> values;  // one per category; none where there is nothing to show
};

struct Chart {
  enum Kind { bars, stacked, lines } kind = bars;  // stacked: the series of a category on one another
  std::string title, x_label, y_label;
  std::vector<std::string> categories;
  std::vector<Series> series;
  std::string missing = "OOM";  // stands where a series has no value
};

std::string to_svg(const Chart& chart);
std::string to_html(const Chart& chart, const std::vector<std::string>& preamble, const std::vector<Table>& tables);
std::string to_html(const std::string& title, const std::string& svg, const std::vector<std::string>& preamble,
                    const std::vector<Table>& tables);

// ---- what other pictures share with these ----
extern const char* const svg_style;  // a <style> element, for an <svg class="chart">, light and dark
std::string svg_text(double x, double y, const std::string& text, const char* anchor, const char* attributes = "");
const char* series_colour(
    size_t i);  // colours that stay apart for the colour-blind (Okabe and Ito), on light and on dark
std::string html_escaped(const std::string& text);
std::string html_tables(const std::vector<Table>& tables);

}  // namespace sinter::lab
