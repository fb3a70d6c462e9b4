#include <algorithm>
#include <fmt/format.h>

#include "lab/machine.h"
#include "lab/units.h"
#include "lab/view.h"

namespace sinter::lab {
namespace {

Table accumulation_table(const Json& results) {
  Table t;
  t.title = "Accumulation: 1000 × 0.01";
  t.columns = {{"sum and terms", true}, {"result"}, {"error"}};
  for (const Json& r : results)
    if (r["experiment"] == "accumulation")
      t.rows.push_back(
          {r["case"], fmt::format("{:.4f}", r["sum"].get<double>()), fmt::format("{:+.4f}", r["error"].get<double>())});
  t.notes = {"0.01 itself is rounded to 16 bits once (2e-3 in the sum); a 16-bit sum is rounded a thousand times."};
  return t;
}

Table autocast_table(const Json& results) {
  Table t;
  t.title = "Types under autocast: fc1 → ReLU → LayerNorm → fc2 → cross-entropy";
  t.columns = {{"tensor", true}};
  std::vector<std::string> types;
  for (const Json& r : results) {
    if (r["experiment"] != "autocast") continue;
    std::string type = r["autocast"], tensor = r["tensor"];
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      types.push_back(type);
      t.columns.push_back({"autocast " + type, true});
    }
    auto row = std::find_if(t.rows.begin(), t.rows.end(), [&](auto& x) { return x[0] == tensor; });
    if (row == t.rows.end()) row = t.rows.insert(row, {tensor});
    row->push_back(r["dtype"]);
  }
  return t;
}

Table norm_table(const Json& results) {
  Table t;
  t.title = "Normalisation with 16-bit and with fp32 statistics";
  t.columns = {{"norm", true},     {"type", true}, {"input", true}, {"eps"},          {"statistics", true},
               {"relative error"}, {"not finite"}, {"vanished"},    {"verdict", true}};
  t.keys = 4;
  int low = 0, low_bad = 0, wide_bad = 0;
  double low_best = 1, wide_worst = 0;
  for (const Json& r : results) {
    if (r["experiment"] != "norm") continue;
    bool wide = r["statistics"] == "fp32", fine = r["verdict"] == "fine";
    double error = r["relative_error"].is_number() ? r["relative_error"].get<double>() : 1;
    if (wide) wide_bad += !fine, wide_worst = std::max(wide_worst, error);
    else ++low, low_bad += !fine, low_best = std::min(low_best, error);
    t.rows.push_back({r["norm"], r["dtype"], r["input"], fmt::format("{:g}", r["eps"].get<double>()), r["statistics"],
                      r["relative_error"].is_number() ? fmt::format("{:.1e}", error) : "inf",
                      percent_text(r["non_finite"]), percent_text(r["vanished"]), r["verdict"]});
  }
  t.notes = {fmt::format("With 16-bit statistics {} of {} cases fail: squares overflow beyond 65504 in fp16, vanish "
                         "below 6e-8, and sums stall.",
                         low_bad, low),
             fmt::format("With fp32 statistics {} fail and the worst error is {:.0e}, the rounding of the result: so "
                         "norms stay in fp32.",
                         wide_bad == 0 ? "none" : std::to_string(wide_bad), wide_worst)};
  return t;
}

Chart norm_chart(const Json& results) {
  Chart c;
  c.title = "Error of normalisation by the type of its statistics";
  c.y_label = "relative error (∞: not finite)";
  c.x_label = "input";
  c.series = {{"16-bit statistics", {}}, {"fp32 statistics", {}}};
  for (const Json& r : results) {
    if (r["experiment"] != "norm" || r["norm"] != "RMSNorm") continue;
    bool wide = r["statistics"] == "fp32";
    std::string input = r["input"].get<std::string>();
    if (!wide) c.categories.push_back(r["dtype"].get<std::string>() + " " + input.substr(0, input.find(' ')));
    c.series[wide].values.push_back(r["relative_error"].is_number() ? r["relative_error"].get<double>() : INFINITY);
  }
  return c;
}

}  // namespace

View precision_view(const Json& record) {
  const Json& results = record["results"];
  std::vector<std::string> lines = machine_lines(record["machine"]);
  lines.push_back(fmt::format("computed on {}", record["config"].value("device", "?")));
  return {lines, {accumulation_table(results), autocast_table(results), norm_table(results)}, norm_chart(results)};
}

}  // namespace sinter::lab
