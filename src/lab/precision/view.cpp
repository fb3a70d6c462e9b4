#include <algorithm>
#include <fmt/format.h>

#include "lab/machine.h"
#include "lab/precision/precision.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

Table accumulation_table(const Json& results) {
  Table t;
  t.title = "Accumulation: 1000 × 0.01";
  t.columns = {{"sum and terms", true}, {"result"}, {"error"}};
  for (const Json& r : results)
    if (r.at("experiment") == "accumulation")
      t.rows.push_back({r.at("case"), fmt::format("{:.4f}", r.at("sum").get<double>()),
                        fmt::format("{:+.4f}", r.at("error").get<double>())});
  t.notes = {"0.01 itself is rounded to 16 bits once (2e-3 in the sum); a 16-bit sum is rounded a thousand times."};
  return t;
}

Table autocast_table(const Json& results) {
  Table t;
  t.title = "Types under autocast: fc1 → ReLU → LayerNorm → fc2 → cross-entropy";
  t.columns = {{"tensor", true}};
  std::vector<std::string> types;
  for (const Json& r : results) {
    if (r.at("experiment") != "autocast") continue;
    std::string type = r.at("autocast"), tensor = r.at("tensor");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      types.push_back(type);
      t.columns.push_back({"autocast " + type, true});
    }
    auto row = std::find_if(t.rows.begin(), t.rows.end(), [&](auto& x) { return x[0] == tensor; });
    if (row == t.rows.end()) row = t.rows.insert(row, {tensor});
    row->push_back(r.at("dtype"));
  }
  for (auto& row : t.rows) row.resize(t.columns.size());  // a record may lack some
  return t;
}

Table norm_table(const Json& results) {
  Table t;
  t.title = "Normalisation with 16-bit and with fp32 statistics";
  t.columns = {{"norm", true},           {"type", true},         {"input", true},
               {"eps", false, 2},        {"statistics", true},   {"relative error"},
               {"not finite", false, 1}, {"vanished", false, 1}, {"verdict", true, 0, Column::wrap}};
  t.keys = 4;
  int low = 0, low_bad = 0, wide_bad = 0;
  double low_best = 1, wide_worst = 0;
  for (const Json& r : results) {
    if (r.at("experiment") != "norm") continue;
    bool wide = r.at("statistics") == "fp32", fine = r.at("verdict") == "fine";
    double error = r.at("relative_error").is_number() ? r.at("relative_error").get<double>() : 1;
    if (wide) wide_bad += !fine, wide_worst = std::max(wide_worst, error);
    else ++low, low_bad += !fine, low_best = std::min(low_best, error);
    t.rows.push_back({r.at("norm"), r.at("dtype"), r.at("input"), fmt::format("{:g}", r.at("eps").get<double>()),
                      r.at("statistics"), r.at("relative_error").is_number() ? fmt::format("{:.1e}", error) : "inf",
                      percent_text(r.at("non_finite")), percent_text(r.at("vanished")), r.at("verdict")});
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
  c.x_label = "type, and the size of the input";
  c.series = {{"16-bit statistics", {}}, {"fp32 statistics", {}}};
  for (const Json& r : results) {
    if (r.at("experiment") != "norm" || r.at("norm") != "RMSNorm") continue;
    bool wide = r.at("statistics") == "fp32";
    std::string input = r.at("input").get<std::string>();
    if (!wide)
      c.categories.push_back(r.at("dtype").get<std::string>() + " " +
                             (input[0] == 'N' ? "1" : input.substr(0, input.find(' '))));
    c.series[wide].values.push_back(r.at("relative_error").is_number() ? r.at("relative_error").get<double>()
                                                                       : INFINITY);
  }
  for (Series& s : c.series) s.values.resize(c.categories.size());
  return c;
}

}  // namespace

View precision_view(const Json& record) {
  const Json& results = record.at("results");
  std::vector<std::string> lines = machine_lines(record.at("machine"));
  lines.push_back(fmt::format("computed on {}", record.at("config").value("device", "?")));
  return {lines, {accumulation_table(results), autocast_table(results), norm_table(results)}, norm_chart(results)};
}

}  // namespace sinter::lab
