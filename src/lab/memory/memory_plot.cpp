#include "lab/memory/memory_plot.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

#include "core/check.h"
#include "lab/plot.h"
#include "system/units.h"

namespace sinter::embedded {
extern const std::string_view memory_timeline_page;  // pages/memory_timeline.html: SinterEmbed.cmake
}

namespace sinter::lab {
namespace {

// ---- the page ----

// JSON for a <script> element: without "<" no string in it can end the element or open a comment.
std::string script_json(const Json& value) {
  std::string out;
  for (char c : value.dump(-1, ' ', false, Json::error_handler_t::replace))
    if (c == '<') out += "\\u003c";
    else out += c;
  return out;
}

struct Filling {
  std::string_view place;
  std::string text;
};

// Places are looked for in the template alone, never in what was filled in before.
std::string filled(std::string_view page, const std::vector<Filling>& fillings) {
  std::string out;
  while (true) {
    const Filling* next = nullptr;
    size_t at = page.size();
    for (const Filling& f : fillings)
      if (size_t found = page.find(f.place); found < at) at = found, next = &f;
    out += page.substr(0, at);
    if (!next) return out;
    out += next->text;
    page.remove_prefix(at + next->place.size());
  }
}

// ---- the picture ----

constexpr double width = 860, left = 76, right = 20, top = 66, plot_height = 300, bottom = 46, legend_row = 20;
constexpr double plot_width = width - left - right;
constexpr int legend_columns = 3;
constexpr size_t column_count = 800;

struct Change {
  double time, bytes;
  int order;  // at equal times: Note [Timeline]
  size_t category;
};

// A record may have been cut or edited: what its columns refer to must be there.
void check_timeline(const Json& t) {
  size_t n = t.at("begin").size();
  for (const char* column : {"end", "bytes", "address", "category", "range", "tensor"})
    check(t.at(column).size() == n, "the timeline's column \"{}\" has {} values, but \"begin\" has {}", column,
          t.at(column).size(), n);
  for (size_t i = 0; i < n; ++i)
    check(t["category"][i].get<size_t>() < t.at("categories").size() &&
              t["range"][i].get<size_t>() < t.at("ranges").size(),
          "the timeline's allocation {} refers to a category or range that is not there", i);
}

std::vector<Change> changes_of(const Json& timeline) {
  const Json &begin = timeline.at("begin"), &end = timeline.at("end");
  std::vector<Change> changes;
  for (size_t i = 0; i < begin.size(); ++i) {
    double from = begin[i].get<double>(), bytes = timeline.at("bytes")[i].get<double>();
    size_t category = timeline.at("category")[i].get<size_t>();
    changes.push_back({from, bytes, 1, category});
    if (end[i].is_null()) continue;
    double to = std::max(from, end[i].get<double>());
    changes.push_back({to, -bytes, to > from ? 0 : 2, category});
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  });
  return changes;
}

struct Moment {
  double time = 0, total = 0;
  std::vector<double> held;  // by category
};

struct Curve {
  double duration = 1;
  Moment peak;
  std::vector<Moment> columns;  // equal stretches of time, each at its moment with the most memory: no peak is lost
};

Curve curve_of(const Json& timeline) {
  std::vector<Change> changes = changes_of(timeline);
  Curve curve;
  curve.duration = timeline.value("duration_us", 0.0);
  if (!changes.empty()) curve.duration = std::max(curve.duration, changes.back().time);
  if (curve.duration <= 0) curve.duration = 1;
  Moment now;
  now.held.resize(timeline.at("categories").size());
  curve.peak = now;
  size_t next = 0;
  for (size_t c = 0; c < column_count; ++c) {
    double end = c + 1 == column_count ? curve.duration : curve.duration * double(c + 1) / double(column_count);
    Moment most = now;
    for (; next < changes.size() && changes[next].time <= end; ++next) {
      now.time = changes[next].time;
      now.total += changes[next].bytes;
      now.held.at(changes[next].category) += changes[next].bytes;
      if (now.total > most.total) most = now;
    }
    if (most.total > curve.peak.total) curve.peak = most;
    curve.columns.push_back(std::move(most));
  }
  return curve;
}

struct Unit {
  const char* name;
  double size;
};
const std::vector<Unit> byte_units = {{"GiB", 1073741824}, {"MiB", 1048576}, {"KiB", 1024}, {"B", 1}};
const std::vector<Unit> time_units = {{"s", 1e6}, {"ms", 1e3}, {"µs", 1}};

const Unit& unit_for(double value, const std::vector<Unit>& units) {
  for (const Unit& u : units)
    if (value >= u.size) return u;
  return units.back();
}

std::string time_text(double us) {
  const Unit& u = unit_for(us, time_units);
  return fmt::format("{} {}", significant(us / u.size, 4), u.name);
}

// About `wanted` round steps from zero on.
std::vector<std::pair<double, std::string>> ticks_to(double high, int wanted, const std::vector<Unit>& units) {
  const Unit& unit = unit_for(high, units);
  double rough = high / unit.size / wanted, power = std::pow(10, std::floor(std::log10(rough))), step = 10 * power;
  for (double m : {5.0, 2.0, 1.0})
    if (m * power >= rough * 0.999) step = m * power;
  int decimals = std::max(0, -int(std::floor(std::log10(step) + 1e-9)));
  std::vector<std::pair<double, std::string>> ticks = {{0, "0"}};
  for (int k = 1; k * step * unit.size <= high; ++k)
    ticks.emplace_back(k * step * unit.size, fmt::format("{:.{}f} {}", k * step, decimals, unit.name));
  return ticks;
}

struct Frame {
  double duration, high;
  double x(double t) const { return left + plot_width * std::clamp(t / duration, 0.0, 1.0); }
  double y(double bytes) const { return top + plot_height * (1 - std::clamp(bytes / high, 0.0, 1.0)); }
};

double capacity_of(const Json& timeline) {
  auto found = timeline.find("capacity");
  return found != timeline.end() && found->is_number() ? found->get<double>() : 0;
}

// The curve of what was taken from the device, as pairs of a time and the bytes from then on.
std::vector<std::pair<double, double>> reserved_curve(const Json& timeline) {
  std::vector<std::pair<double, double>> curve;
  for (const Json& point : timeline.value("reserved", Json::array()))
    curve.emplace_back(point.at(0).get<double>(), point.at(1).get<double>());
  return curve;
}

// Room for what is reserved, and for the device's capacity where it is near.
double top_of(const Json& timeline, const Curve& curve) {
  double high = std::max(1.0, curve.peak.total), capacity = capacity_of(timeline);
  for (auto [time, bytes] : reserved_curve(timeline)) high = std::max(high, bytes);
  if (capacity > 0 && capacity <= 1.4 * high) high = std::max(high, capacity);
  return high * 1.07;
}

std::string line_at(double x1, double y1, double x2, double y2, const char* attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     attributes);
}

std::string axes_of(const Frame& frame, const Json& timeline) {
  std::string out;
  for (const auto& [value, text] : ticks_to(frame.high, 6, byte_units)) {
    out += line_at(left, frame.y(value), width - right, frame.y(value), "class=\"grid\"");
    out += svg_text(left - 6, frame.y(value) + 4, text, "end", " class=\"faint\"");
  }
  for (const auto& [value, text] : ticks_to(frame.duration, 7, time_units)) {
    out += line_at(frame.x(value), top + plot_height, frame.x(value), top + plot_height + 4, "class=\"axis\"");
    out += svg_text(frame.x(value), top + plot_height + 18, text, "middle", " class=\"faint\"");
  }
  out += line_at(left, top + plot_height, width - right, top + plot_height, "class=\"axis\"");
  return out + svg_text(left + plot_width / 2, top + plot_height + 36, timeline.value("clock", ""), "middle",
                        " class=\"faint\"");
}

// Each category's area reaches down to the axis and is covered by those below it, so that no seams show.
std::string areas_of(const Frame& frame, const Curve& curve) {
  std::string out;
  for (size_t category = curve.peak.held.size(); category-- > 0;) {
    std::string path;
    double before = -1, most = 0;
    for (size_t c = 0; c < curve.columns.size(); ++c) {
      const Moment& m = curve.columns[c];
      double sum = 0;
      for (size_t k = 0; k <= category; ++k) sum += m.held[k];
      most = std::max(most, m.held[category]);
      if (sum == before) continue;
      double x = left + plot_width * double(c) / double(column_count);
      path += c == 0 ? fmt::format("M{:.1f} {:.1f}V{:.1f}", x, top + plot_height, frame.y(sum))
                     : fmt::format("H{:.1f}V{:.1f}", x, frame.y(sum));
      before = sum;
    }
    if (most == 0) continue;
    out += fmt::format("<path d=\"{}H{:.1f}V{:.1f}Z\" fill=\"{}\"/>\n", path, width - right, top + plot_height,
                       series_colour(category));
  }
  return out;
}

std::string phases_of(const Frame& frame, const Json& timeline) {
  constexpr double strip = top - 20, letter = 6.5;  // the width of a letter, roughly
  std::string out;
  for (const Json& phase : timeline.value("phases", Json::array())) {
    std::string name = phase.at("name").get<std::string>();
    double from = frame.x(phase.at("begin").get<double>()), to = frame.x(phase.at("end").get<double>());
    out += fmt::format(
        "<rect class=\"phase\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"16\"><title>{}</title></rect>\n", from,
        strip, std::max(0.5, to - from - 1), html_escaped(name));
    if (to - from > 6) {
      out += line_at(from, top, from, top + plot_height, "class=\"boundary\"");
      out += line_at(to, top, to, top + plot_height, "class=\"boundary\"");
    }
    if (to - from > letter * double(name.size()) + 6)
      out += svg_text((from + to) / 2, strip + 12, name, "middle", " class=\"faint\"");
  }
  return out;
}

std::string reserved_of(const Frame& frame, const Json& timeline) {
  std::string path;
  for (auto [time, bytes] : reserved_curve(timeline))
    path += fmt::format("{}{:.1f}{}{:.1f}", path.empty() ? "M" : "H", frame.x(time), path.empty() ? " " : "V",
                        frame.y(bytes));
  return path.empty() ? "" : fmt::format("<path class=\"reserved\" d=\"{}H{:.1f}\"/>\n", path, width - right);
}

std::string capacity_line(const Frame& frame, const Json& timeline) {
  double capacity = capacity_of(timeline);
  if (capacity <= 0 || capacity > frame.high) return "";
  double y = frame.y(capacity);
  return line_at(left, y, width - right, y, "stroke=\"#D55E00\" stroke-dasharray=\"6 4\"") +
         svg_text(width - right - 4, y - 4, "device capacity " + bytes_text(capacity), "end", " class=\"faint\"");
}

// The label stands above the line of what is reserved, where that runs close.
std::string peak_of(const Frame& frame, const Curve& curve, const Json& timeline) {
  double x = frame.x(curve.peak.time), y = frame.y(curve.peak.total), foot = y - 7;
  for (auto [time, bytes] : reserved_curve(timeline))
    if (time <= curve.peak.time && bytes > curve.peak.total && frame.y(bytes) > y - 24) foot = frame.y(bytes) - 5;
  bool to_left = x > left + plot_width / 2;
  return fmt::format("<circle class=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", x, y) +
         svg_text(x + (to_left ? -8 : 8), foot,
                  fmt::format("peak {} at {}", bytes_text(curve.peak.total), time_text(curve.peak.time)),
                  to_left ? "end" : "start", " class=\"strong\"");
}

std::vector<size_t> used_categories(const Curve& curve) {
  std::vector<size_t> used;
  for (size_t k = 0; k < curve.peak.held.size(); ++k)
    if (std::any_of(curve.columns.begin(), curve.columns.end(), [&](const Moment& m) { return m.held[k] > 0; }))
      used.push_back(k);
  return used;
}

std::string legend_of(const Curve& curve, const Json& timeline, const std::vector<size_t>& used) {
  std::string out;
  size_t entries = 0;
  auto entry = [&](const std::string& text, double amount, const char* attributes, double mark_height) {
    size_t row = entries / legend_columns, column = entries % legend_columns;
    double x = left + plot_width / legend_columns * double(column);
    double y = top + plot_height + bottom + legend_row * double(row);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"{}\" {}/>\n", x, y + 6 - mark_height / 2,
                       mark_height, attributes);
    out += svg_text(x + 18, y + 11, fmt::format("{}, {}", text, amount > 0 ? bytes_text(amount) : "0"), "start");
    ++entries;
  };
  for (size_t k : used)
    entry(timeline.at("categories")[k].get<std::string>(), curve.peak.held[k],
          fmt::format("fill=\"{}\"", series_colour(k)).c_str(), 12);
  auto reserved = reserved_curve(timeline);
  if (!reserved.empty()) entry("reserved at the end", reserved.back().second, "class=\"line\"", 1.5);
  return out;
}

constexpr const char* timeline_style =
    "<style>.chart .axis{stroke:#888}.chart .boundary{stroke:#0006;stroke-dasharray:2 3}.chart .phase{fill:#e9ecf0}"
    ".chart .reserved{fill:none;stroke:#222;stroke-width:1.2}.chart .line{fill:#222}.chart "
    ".peak{fill:#222;stroke:#fff;stroke-width:1.5}"
    ".chart .strong{font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){.chart .boundary{stroke:#fff6}.chart .phase{fill:#2a2f37}"
    ".chart .reserved{stroke:#eee}.chart .line{fill:#eee}.chart .peak{fill:#eee;stroke:#16181c}.chart "
    ".strong{stroke:#16181c}}</style>\n";

}  // namespace

std::string memory_timeline_html(const Json& timeline, const std::vector<std::string>& preamble,
                                 const std::vector<Table>& tables) {
  check_timeline(timeline);
  std::string notes;
  for (const std::string& line : preamble) notes += "<p>" + html_escaped(line) + "</p>\n";
  return filled(embedded::memory_timeline_page,
                {{"{{notes}}", notes + html_tables(tables)}, {"{{timeline}}", script_json(timeline)}});
}

std::string memory_timeline_svg(const Json& timeline) {
  check_timeline(timeline);
  Curve curve = curve_of(timeline);
  std::vector<size_t> used = used_categories(curve);
  Frame frame{curve.duration, top_of(timeline, curve)};
  size_t legend_rows = used.size() / legend_columns + 1;  // with an entry for reserved memory
  double height = top + plot_height + bottom + legend_row * double(legend_rows) + 4;
  std::string out = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "role=\"img\">\n",
      width, height);
  out += svg_style;
  out += timeline_style;
  out += fmt::format("<rect class=\"ground\" width=\"{}\" height=\"{}\" fill=\"#fff\"/>\n", width, height);
  std::string title = timeline.value("title", "");
  if (timeline.value("predicted", false)) title += " (predicted)";
  out += svg_text(left, 20, title, "start", " class=\"title\"");
  out += svg_text(left, 37,
                  "active memory on " + timeline.value("device", "the device") + "; below, each category at the peak",
                  "start", " class=\"faint\"");
  out += areas_of(frame, curve) + axes_of(frame, timeline) + phases_of(frame, timeline) + reserved_of(frame, timeline);
  out += capacity_line(frame, timeline) + peak_of(frame, curve, timeline) + legend_of(curve, timeline, used);
  return out + "</svg>\n";
}

}  // namespace sinter::lab
