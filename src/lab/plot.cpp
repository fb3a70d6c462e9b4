#include "lab/plot.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "system/units.h"

namespace sinter::lab {

std::string html_escaped(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

const char* series_colour(size_t i) {
  static const char* const colours[] = {"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                        "#56B4E9", "#D55E00", "#999999", "#B5A900"};
  return colours[i % 8];
}

std::string svg_text(double x, double y, const std::string& text, const char* anchor, const char* extra) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, extra,
                     html_escaped(text));
}

const char* const svg_style =
    "<style>.chart text{font:12px system-ui,sans-serif;fill:#222}.chart .faint{fill:#666;font-size:11px}.chart "
    ".title{font-size:15px;"
    "font-weight:600}.chart .grid{stroke:#8884;stroke-width:1}"
    "@media(prefers-color-scheme:dark){.chart text{fill:#eee}.chart .faint{fill:#aaa}.chart "
    ".ground{fill:#16181c}}</style>\n";

std::string html_tables(const std::vector<Table>& tables) {
  std::string out;
  for (const Table& t : tables) {
    if (!t.title.empty()) out += "<h2>" + html_escaped(t.title) + "</h2>\n";
    out += "<div><table><tr>";
    auto cell = [&](const char* tag, size_t c, const std::string& s) {
      out += fmt::format("<{0}{1}>{2}</{0}>", tag, t.columns[c].left ? " class=\"l\"" : "", html_escaped(s));
    };
    for (size_t c = 0; c < t.columns.size(); ++c) cell("th", c, t.columns[c].header);
    out += "</tr>\n";
    for (const auto& row : t.rows) {
      out += "<tr>";
      for (size_t c = 0; c < row.size(); ++c) cell("td", c, row[c]);
      out += "</tr>\n";
    }
    out += "</table></div>\n";
    for (const std::string& n : t.notes) out += "<p>" + html_escaped(n) + "</p>\n";
  }
  return out;
}

namespace {

constexpr double width = 860, left = 70, right = 20, top = 44, plot_height = 300, bottom = 46, legend_row = 20;
constexpr double plot_width = width - left - right;
constexpr int legend_columns = 3;

struct Scale {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;
  double y(double v) const {
    double f =
        log ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (v - low) / (high - low);
    return top + plot_height * (1 - std::clamp(f, 0.0, 1.0));
  }
};

// Linear from zero, or logarithmic where values differ by more than a factor of 50.
Scale scale_of(const Chart& chart) {
  double low = INFINITY, high = 0;
  std::vector<double> sums(chart.categories.size());
  for (const Series& s : chart.series)
    for (size_t c = 0; c < sums.size(); ++c) {
      const auto& v = s.values[c];
      if (!v || *v <= 0 || !std::isfinite(*v)) continue;
      sums[c] += *v;
      low = std::min(low, *v), high = std::max(high, chart.kind == Chart::stacked ? sums[c] : *v);
    }
  Scale scale;
  if (high == 0) return scale;
  scale.log = high / low > 50 && chart.kind != Chart::stacked;
  if (scale.log) {
    double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high * 1.001));
    scale.low = std::pow(10, first), scale.high = std::pow(10, last);
    for (double e = first; e <= last; ++e) scale.ticks.push_back(std::pow(10, e));
  } else {
    double step = std::pow(10, std::floor(std::log10(high)));
    while (high / step < 4) step /= 2;
    scale.high = std::ceil(high * 1.02 / step) * step;
    for (double t = 0; t <= scale.high * 1.001; t += step) scale.ticks.push_back(t);
  }
  return scale;
}

std::string tooltip(const Chart& chart, const Series& s, size_t category) {
  return fmt::format("<title>{}</title>",
                     html_escaped(fmt::format("{}, {}: {} {}", s.name, chart.categories[category],
                                              significant(*s.values[category], 4), chart.y_label)));
}

std::string bars_of(const Chart& chart, const Scale& scale) {
  std::string out;
  double group = plot_width / double(chart.categories.size()), bar = group * 0.8 / double(chart.series.size());
  for (size_t s = 0; s < chart.series.size(); ++s)
    for (size_t c = 0; c < chart.categories.size(); ++c) {
      const auto& v = chart.series[s].values[c];
      double x = left + group * (double(c) + 0.1) + bar * double(s);
      if (!v || !std::isfinite(*v)) {
        out += svg_text(x + bar / 2, top + plot_height - 4, v ? "∞" : chart.missing, "middle", " class=\"faint\"");
        continue;
      }
      double y = scale.y(*v);
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">{}</rect>\n",
                         x, y, std::max(1.0, bar - 1), top + plot_height - y, series_colour(s),
                         tooltip(chart, chart.series[s], c));
      if (bar > 34) out += svg_text(x + bar / 2, y - 4, significant(*v, 3), "middle", " class=\"faint\"");
    }
  return out;
}

std::string stacks_of(const Chart& chart, const Scale& scale) {
  std::string out;
  double group = plot_width / double(chart.categories.size());
  for (size_t c = 0; c < chart.categories.size(); ++c) {
    double x = left + group * (double(c) + 0.1), sum = 0;
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const auto& v = chart.series[s].values[c];
      if (!v || *v <= 0) continue;
      double y = scale.y(sum + *v);
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">{}</rect>\n",
                         x, y, group * 0.8, scale.y(sum) - y, series_colour(s), tooltip(chart, chart.series[s], c));
      sum += *v;
    }
    std::string label = sum > 0 ? significant(sum, 3) : chart.missing;
    if (group > 32) out += svg_text(x + group * 0.4, scale.y(sum) - 4, label, "middle", " class=\"faint\"");
  }
  return out;
}

std::string lines_of(const Chart& chart, const Scale& scale) {
  std::string out;
  double step = plot_width / double(chart.categories.size());
  for (size_t s = 0; s < chart.series.size(); ++s) {
    std::string points, dots;
    size_t shown = 0;
    for (size_t c = 0; c < chart.categories.size(); ++c) {
      const auto& v = chart.series[s].values[c];
      if (!v || !std::isfinite(*v)) continue;
      double x = left + step * (double(c) + 0.5), y = scale.y(*v);
      ++shown;
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\">{}</circle>\n", x, y,
                          series_colour(s), tooltip(chart, chart.series[s], c));
    }
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points,
                       series_colour(s));
    if (double(shown) * 12 <= plot_width) out += dots;  // more would hide the line
  }
  return out;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  size_t legend_rows = (chart.series.size() + legend_columns - 1) / legend_columns;
  double step = plot_width / double(std::max<size_t>(1, chart.categories.size()));
  size_t longest = 0;
  for (const std::string& c : chart.categories) longest = std::max(longest, c.size());
  constexpr double letter = 6.2;
  bool slanted = chart.kind != Chart::lines && double(longest) * letter > step && longest > 12;
  double labels = slanted ? double(longest) * letter * 0.9 : 0;  // how far slanted labels reach down
  double height = top + plot_height + labels + bottom + legend_row * double(legend_rows);
  Scale scale = scale_of(chart);
  std::string out = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "role=\"img\">\n",
      width, height);
  out += svg_style;
  out += fmt::format("<rect class=\"ground\" width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", width, height);
  out += svg_text(left, 20, chart.title, "start", " class=\"title\"");
  out += svg_text(left, 37, chart.y_label + (scale.log ? " (logarithmic)" : ""), "start", " class=\"faint\"");
  for (double t : scale.ticks) {
    double y = scale.y(t);
    out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", left, width - right,
                       y, y);
    out += svg_text(left - 6, y + 4, fmt::format("{:.4g}", t), "end", " class=\"faint\"");
  }
  out += chart.kind == Chart::bars      ? bars_of(chart, scale)
         : chart.kind == Chart::stacked ? stacks_of(chart, scale)
                                        : lines_of(chart, scale);
  size_t every = slanted ? 1 : size_t(std::ceil(60 / std::max(step, 1.0)));  // labels must not overlap
  for (size_t c = 0; c < chart.categories.size(); c += every) {
    double x = left + step * (double(c) + 0.5), y = top + plot_height + (slanted ? 12 : 18);
    std::string turn = slanted ? fmt::format(" transform=\"rotate(-65 {:.1f} {:.1f})\"", x, y) : "";
    out += svg_text(x, y, chart.categories[c], slanted ? "end" : "middle", turn.c_str());
  }
  out += svg_text(left + plot_width / 2, top + plot_height + labels + 36, chart.x_label, "middle", " class=\"faint\"");
  for (size_t s = 0; s < chart.series.size(); ++s) {
    size_t row = s / legend_columns, column = s % legend_columns;
    double x = left + plot_width / legend_columns * double(column);
    double y = top + plot_height + labels + bottom + legend_row * double(row);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, y,
                       series_colour(s));
    out += svg_text(x + 18, y + 11, chart.series[s].name, "start");
  }
  return out + "</svg>\n";
}

std::string to_html(const Chart& chart, const std::vector<std::string>& preamble, const std::vector<Table>& tables) {
  return to_html(chart.title, to_svg(chart), preamble, tables);
}

std::string to_html(const std::string& title, const std::string& svg, const std::vector<std::string>& preamble,
                    const std::vector<Table>& tables) {
  std::string out =
      fmt::format("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<style>",
                  html_escaped(title));
  out +=
      ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em "
      "auto;padding:0 1em}"
      "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}"
      "th,td{padding:.2em .6em;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}.l{text-align:left}"
      "div{overflow-x:auto}p{color:#777;margin:.2em 0}</style></head><body>\n";
  out += "<h1>" + html_escaped(title) + "</h1>\n";
  for (const std::string& line : preamble) out += "<p>" + html_escaped(line) + "</p>\n";
  out += svg;
  out += html_tables(tables);
  return out + "</body></html>\n";
}

}  // namespace sinter::lab
