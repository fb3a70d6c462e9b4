// Predictions beside measurements, as people read them.
#include <cmath>
#include <filesystem>

#include "lab/plan_validate/plan_validate.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

struct Errors {
  double sum = 0, worst = 0;
  int count = 0;
  void add(double error) { sum += std::abs(error), worst = std::max(worst, std::abs(error)), ++count; }
  std::string text() const {
    return count == 0 ? "–" : fmt::format("{:.1f} % on average, {:.1f} % at worst", 100 * sum / count, 100 * worst);
  }
};

std::string percent(double x) { return fmt::format("{:+.1f}", 100 * x); }

}  // namespace

View plan_validate_view(const Json& record) {
  View view;
  Table t;
  t.title = "Predicted beside measured";
  t.columns = {{"run", true},
               {"source", true, 3},
               {"what", true, 1, Column::cut},
               {"machine", true, 4},
               {"devices", false, 2},
               {"measured ms"},
               {"factor", false, 5},
               {"predicted ms"},
               {"error %"},
               {"constant part of peak, error %", false, 6}};
  Errors errors, naive;
  for (const Json& r : record.at("results")) {
    double measured = r.at("measured_ms"), predicted = r.at("predicted_ms"), simple = r.at("naive_ms");
    bool published_run = r.at("kind") == "published";
    bool counted = r.value("left_out", "").empty();
    if (counted) errors.add(predicted / measured - 1);
    if (counted && simple > 0) naive.add(simple / measured - 1);
    std::string source = std::filesystem::path(r.at("source").get<std::string>()).filename();
    t.rows.push_back({r.at("id"), source, r.at("text"), r.at("machine"),
                      published_run ? std::to_string(r.at("devices").get<int64_t>()) : "", significant(measured, 4),
                      published_run ? fmt::format("{:.2f}", r.at("factor").get<double>()) : "",
                      significant(predicted, 4), counted ? percent(predicted / measured - 1) : "left out",
                      simple > 0 ? percent(simple / measured - 1) : ""});
  }
  bool published = false;
  for (const Json& r : record.at("results")) published = published || r.at("kind") == "published";
  const Json& config = record.at("config");
  if (!config.value("machine_hash", "").empty())
    view.preamble.push_back(fmt::format("{}, hash {}, as it was before anything was measured.",
                                        config.value("machine", "?"), config.value("machine_hash", "?")));
  t.notes = {"predicted: " + errors.text() + ", of " + std::to_string(errors.count) + " runs.",
             "a constant part of the peak: " + naive.text() + ".",
             published ? "factor: one number for each source, fitted to its other runs (of a single run: to other "
                         "sources)."
                       : "The constant part is the best there is for these steps."};
  for (const Json& r : record.at("results"))
    if (!r.value("left_out", "").empty())
      t.notes.push_back(
          fmt::format("{} is left out: {}.", r.at("id").get<std::string>(), r.at("left_out").get<std::string>()));
  t.drop_empty_columns();
  view.tables = {t};
  return view;
}

}  // namespace sinter::lab
