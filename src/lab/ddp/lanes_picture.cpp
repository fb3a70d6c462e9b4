// A step of each strategy as lanes over time: compute, updates and collectives, all on one scale.
#include <algorithm>

#include "lab/config_text.h"
#include "lab/ddp/bench_ddp.h"
#include "lab/plot.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

constexpr double width = 1000, left = 190, right = 20, lane_height = 18, gap = 22, top = 64;
struct LaneStyle {
  const char *name, *colour;
};
constexpr LaneStyle styles[] = {{"compute", "#0072B2"}, {"updates", "#009E73"}, {"communication", "#D55E00"}};

// A round number that makes about eight steps.
double tick_of(double span) {
  double tick = 1;
  while (span / tick > 8) tick *= span / tick > 16 ? (span / tick > 40 ? 5 : 2.5) : 2;
  return tick;
}

}  // namespace

std::string lanes_picture(const std::string& title, const std::vector<const Json*>& rows) {
  double longest = 1;
  for (const Json* r : rows) longest = std::max(longest, r->at("lanes").value("step_us", 1.0));
  auto x = [&](double us) { return left + (width - left - right) * us / longest; };
  double y = top;
  std::string body;
  for (const Json* r : rows) {
    const Json& lanes = r->at("lanes");
    std::string name = r->value("strategy", "?");
    if (r->contains("bucket_mb")) name += fmt::format(" {} MiB", r->at("bucket_mb").get<double>());
    body += svg_text(10, y + lane_height - 4, name, "start", " font-weight=\"600\"");
    body += svg_text(10, y + 2 * lane_height - 2,
                     fmt::format("{}, {} ms, {} ranks", r->value("mode", "?"),
                                 significant(lanes.value("step_us", 0.0) / 1e3, 3), r->value("ranks", 0)),
                     "start", " class=\"faint\"");
    for (const LaneStyle& style : styles) {
      if (!lanes.contains(style.name)) continue;
      for (const Json& piece : lanes[style.name]) {
        double from = x(piece.at(0).get<double>()), to = std::max(from + 0.4, x(piece.at(1).get<double>()));
        body += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\"/>\n", from,
                            y, to - from, lane_height - 3, style.colour);
      }
      y += lane_height;
    }
    y += gap;
  }
  double height = y + 20;
  std::string axis;
  for (double t = 0, tick = tick_of(longest / 1e3); t <= longest / 1e3; t += tick) {
    axis += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>\n",
                        x(t * 1e3), top - 8, y - gap + 4);
    axis += svg_text(x(t * 1e3), y - 2, fmt::format("{:g}", t), "middle", " class=\"faint\"");
  }
  axis += svg_text((left + width) / 2, y + 14, "milliseconds", "middle", " class=\"faint\"");
  std::string legend;
  double at = left;
  for (const LaneStyle& style : styles) {
    legend += fmt::format("<rect x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", at, style.colour);
    legend += svg_text(at + 17, 44, style.name, "start");
    at += 130;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
             "width=\"{0:.0f}\" "
             "height=\"{1:.0f}\">\n{2}<rect class=\"ground\" width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
             width, height, svg_style) +
         svg_text(10, 22, title, "start", " class=\"title\"") + legend + axis + body + "</svg>\n";
}

}  // namespace sinter::lab
