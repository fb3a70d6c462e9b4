// Simulated steps as people read them.
#include <cmath>
#include <map>

#include "lab/config_text.h"
#include "lab/plan_simulate/plan_simulate.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string layout_text(const Json& r) {
  std::string text;
  for (const char* axis : {"data", "tensor", "pipeline", "context"})
    if (int64_t n = r.at(axis); n > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", n, axis);
  return text.empty() ? "one device" : text;
}

std::string how_text(const Json& r) {
  std::string shard = r.at("shard");
  return shard == "none" ? r.at("strategy").get<std::string>() : "shard " + shard;
}

// What is compared by the number of devices.
std::string series_of(const Json& r) {
  return fmt::format("{} {} {}", size_name(r), r.at("dtype").get<std::string>(), how_text(r));
}

}  // namespace

View plan_simulate_view(const Json& record) {
  const Json& results = record.at("results");
  View view;
  Table t;
  t.title = "A step, simulated";
  t.columns = {{"model", true},
               {"dtype", true, 1},
               {"devices"},
               {"as", true, 4},
               {"how", true},
               {"step ms"},
               {"between ms", false, 3},
               {"comm. ms", false, 5},
               {"exposed ms"},
               {"bubble ms", false, 2},
               {"tokens/s"},
               {"MFU %"},
               {"efficiency %"},
               {"GiB"},
               {"fits", true}};
  t.keys = 2;
  std::map<std::string, std::pair<int64_t, double>> smallest;  // devices, tokens/s of each
  for (const Json& r : results) {
    int64_t devices = r.at("devices");
    auto [it, added] = smallest.try_emplace(series_of(r), devices, 0);
    if (added || devices <= it->second.first)
      it->second = {devices, r.at("tokens_per_s").get<double>() / double(devices)};
  }
  Chart chart;
  chart.kind = Chart::lines, chart.title = "Efficiency by number of devices";
  chart.x_label = "devices", chart.y_label = "% of the fewest devices' tokens/s each";
  std::map<std::string, std::map<int64_t, double>> lines;
  bool datasheet = false, closed = false, outside = false;
  for (const Json& r : results) {
    int64_t devices = r.at("devices");
    double efficiency = 100 * r.at("tokens_per_s").get<double>() / double(devices) / smallest[series_of(r)].second;
    lines[series_of(r)][devices] = efficiency;
    double bubble = r.at("bubble_ms");
    t.rows.push_back(
        {size_name(r), r.at("dtype"), std::to_string(devices), layout_text(r), how_text(r),
         significant(r.at("step_ms"), 4),
         fmt::format("{} … {}", significant(r.at("low_ms"), 3), significant(r.at("high_ms"), 3)),
         significant(r.at("communication_ms"), 3), significant(r.at("exposed_ms"), 3),
         bubble > 0 ? significant(bubble, 3) : "", grouped(std::llround(r.at("tokens_per_s").get<double>())),
         fmt::format("{:.1f}", 100 * r.at("mfu").get<double>()), fmt::format("{:.1f}", efficiency),
         significant(r.at("peak_bytes").get<double>() / double(1 << 30), 3), r.at("fits").get<bool>() ? "yes" : "no"});
    datasheet = datasheet || r.at("source") == "datasheet";
    closed = closed || !r.at("exact_bytes").get<bool>();
    outside = outside || r.at("outside").get<double>() > 0.25;
  }
  t.drop_empty_columns();
  if (results.empty()) return view;
  const Json& r = results[0];
  view.preamble = {fmt::format("Machine {} ({}), network {}; predicted, nothing was run.",
                               r.at("machine").get<std::string>(), r.at("source").get<std::string>(),
                               r.at("network").get<std::string>())};
  if (r.at("slow_device").get<double>() > 1)
    view.preamble.push_back(fmt::format("One device is {} times as slow as the others, which wait for it.",
                                        significant(r.at("slow_device"), 3)));
  if (r.at("slow_link").get<double>() > 1)
    view.preamble.push_back(
        fmt::format("Its slowest link makes collectives take {} times as long.", significant(r.at("slow_link"), 3)));
  if (datasheet)
    t.notes.push_back("from a datasheet: the range is how far published steps were from such predictions.");
  if (outside) t.notes.push_back("a quarter or more of the FLOPs is in products of sizes that were not measured.");
  if (closed) t.notes.push_back("GiB of divided models: by closed forms, sinter plan cost.");
  view.tables = {t};
  for (const auto& [name, points] : lines) {
    if (points.size() < 2) continue;
    for (const auto& [devices, value] : points)
      if (std::find(chart.categories.begin(), chart.categories.end(), std::to_string(devices)) ==
          chart.categories.end())
        chart.categories.push_back(std::to_string(devices));
  }
  for (const auto& [name, points] : lines) {
    Series s{name, {}};
    for (const std::string& c : chart.categories) {
      auto at = points.find(std::stoll(c));
      s.values.push_back(at == points.end() ? std::nullopt : std::optional<double>(at->second));
    }
    if (points.size() >= 2) chart.series.push_back(s);
  }
  chart.missing = "";
  if (!chart.series.empty()) view.chart = chart;
  return view;
}

}  // namespace sinter::lab
