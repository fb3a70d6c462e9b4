// Equations as people read them.
#include <cmath>

#include "lab/config_text.h"
#include "lab/plan_cost/plan_cost.h"
#include "plan/sheet.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// Bytes in full as long as they are easily read so.
std::string bytes_cell(double bytes) { return bytes < 1e8 ? grouped(std::llround(bytes)) + " B" : bytes_text(bytes); }

std::string result_text(const Json& value, const std::string& unit) {
  if (!value.is_number()) return "no batch";
  double v = value;
  if (unit == "B") return bytes_cell(v);
  if (unit == "s") return v < 1e-3 ? significant(1e6 * v, 3) + " µs" : significant(1e3 * v, 3) + " ms";
  if (unit == "tokens") return v == 0 ? "any batch" : plan::number_text(std::ceil(v)) + " tokens";
  if (unit == "FLOP") return (v < 1e15 ? significant(v / 1e12, 4) : plan::number_text(std::round(v / 1e12))) + " TFLOP";
  std::string text = v == std::floor(v) || unit == "B/s" ? plan::number_text(v) : significant(v, 4);
  return unit.empty() ? text : text + " " + unit;
}

Table section_table(const std::string& title) {
  Table t;
  t.title = title;
  if (title == "Given") t.columns = {{"symbol", true}, {"value"}, {"what it is", true}};
  else t.columns = {{"", true, 0, Column::wrap}, {"result"}, {"equation, and with its numbers", true, 0, Column::wrap}};
  return t;
}

// Beside one another: what a device needs at each level, and what the data axis carries.
Table level_table(const Json& results, double memory) {
  Table t;
  t.title = "By level, in GiB: memory of a device, and what it sends to data ranks in a step";
  const std::vector<std::pair<const char*, const char*>> symbols = {{"D_master", "masters"},
                                                                    {"D_copy", "copies"},
                                                                    {"D_grad", "gradients"},
                                                                    {"D_moment", "moments"},
                                                                    {"D_lent", "gathered"},
                                                                    {"A", "activations"},
                                                                    {"D", "all"},
                                                                    {"D_k", "all, k"},
                                                                    {"Q_X", "sent"}};
  t.columns = {{"level", true}};
  for (const auto& [symbol, name] : symbols) t.columns.push_back({name, false, name == std::string("all") ? 0 : 1});
  t.columns.push_back({"fits", true});
  std::map<std::string, std::map<std::string, double>> levels;
  std::vector<std::string> order;
  for (const Json& r : results) {
    if (r.at("section") != "levels") continue;
    std::string level = r.at("level");
    if (!levels.contains(level)) order.push_back(level);
    levels[level][r.at("symbol")] = r.at("value");
  }
  for (const std::string& level : order) {
    std::vector<std::string>& row = t.rows.emplace_back(std::vector{level});
    auto& values = levels[level];
    for (const auto& [symbol, name] : symbols)
      row.push_back(values[symbol] == 0 ? "" : significant(values[symbol] / double(1 << 30), 3));
    row.push_back(values["D"] <= memory ? "yes" : values["D_k"] <= memory ? "with k" : "no");
  }
  t.drop_empty_columns();
  t.notes = {fmt::format("all, k: with the best checkpoints. fits: in {} · 10⁹ bytes, as it is or with checkpoints.",
                         plan::number_text(memory / 1e9))};
  return t;
}

}  // namespace

View plan_cost_view(const Json& record) {
  const Json &config = record.at("config"), &results = record.at("results");
  View view;
  view.preamble = {fmt::format("{}, batch {} of each data rank, ctx {}, {}; {} data × {} tensor ranks, shard {}",
                               config.contains("preset") ? config["preset"].get<std::string>() : size_name(config),
                               config.value("batch", 0L), config.value("ctx", 0L), config.value("dtype", "?"),
                               config.value("data", 0L), config.value("tensor", 0L), config.value("shard", "?")),
                   "Equations, nothing was run; docs/plan.md explains them."};
  bool levels = false;
  for (const Json& r : results) {
    std::string section = r.at("section");
    levels = levels || section == "levels";
    if (section == "levels") continue;
    if (view.tables.empty() || view.tables.back().title != section) view.tables.push_back(section_table(section));
    std::vector<std::vector<std::string>>& rows = view.tables.back().rows;
    std::string symbol = r.at("symbol"), what = r.at("what"), formula = r.at("formula"), numbers = r.at("numbers");
    std::string unit = r.at("unit");
    if (formula.empty())
      rows.push_back({symbol, plan::number_text(r.at("value")) + (unit.empty() ? "" : " ") + unit, what});
    else
      rows.push_back({what, result_text(r.at("value"), unit),
                      fmt::format("{} = {}{}", symbol, formula, numbers == formula ? "" : " = " + numbers)});
  }
  if (levels) view.tables.push_back(level_table(results, config.value("memory_bytes", 0.0)));
  return view;
}

}  // namespace sinter::lab
