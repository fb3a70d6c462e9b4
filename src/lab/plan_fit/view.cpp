// What fits, the fastest first.
#include <algorithm>
#include <cmath>

#include "lab/config_text.h"
#include "lab/plan_fit/plan_fit.h"
#include "system/units.h"

namespace sinter::lab {

View plan_fit_view(const Json& record) {
  const Json& config = record.at("config");
  View view;
  Table fits, others;
  fits.title = "What fits, the fastest first";
  fits.columns = {{"dtype", true}, {"shard", true}, {"micro-batch"}, {"times", false},         {"recompute", true},
                  {"step ms"},     {"tokens/s"},    {"GiB"},         {"% of memory", false, 2}};
  others.title = "What does not";
  others.columns = {{"dtype", true}, {"shard", true}, {"micro-batch"}, {"why", true, 0, Column::wrap}};
  std::vector<Json> rows(record.at("results").begin(), record.at("results").end());
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
    return a.at("tokens_per_s").get<double>() > b.at("tokens_per_s").get<double>();
  });
  for (const Json& r : rows) {
    std::string batch = std::to_string(r.at("batch").get<int64_t>());
    if (!r.at("fits").get<bool>()) {
      others.rows.push_back({r.at("dtype"), r.at("shard"), batch, r.at("reason")});
      continue;
    }
    double need = r.at("need_bytes"), memory = r.at("memory_bytes");
    fits.rows.push_back({r.at("dtype"), r.at("shard"), batch, std::to_string(r.at("accumulate").get<int64_t>()),
                         r.at("recompute").get<bool>() ? "yes" : "", significant(r.at("step_ms"), 4),
                         grouped(std::llround(r.at("tokens_per_s").get<double>())),
                         fmt::format("{:.1f}", need / double(1 << 30)), fmt::format("{:.0f}", 100 * need / memory)});
  }
  fits.drop_empty_columns();
  view.preamble = {
      fmt::format("{}, ctx {}, {} sequences a step on {} × {} ({}) with {} each; predicted, nothing was run.",
                  rows.empty() ? "?" : size_name(rows[0]), rows.empty() ? 0 : rows[0].at("ctx").get<int64_t>(),
                  config.value("global_batch", 0L), config.value("gpus", 0L), config.value("machine", "?"),
                  config.value("machine_source", "?"), bytes_text(config.value("memory_bytes", 0.0)))};
  fits.notes = {
      "GiB: what a device must have free, exact to the byte for what the engine allocates, with what the "
      "driver and libraries take. times: micro-batches of a step, on each device. recompute: as much as the "
      "memory asks for."};
  if (!fits.rows.empty()) view.tables.push_back(fits);
  else if (record.contains("fewest_ranks"))
    view.preamble.push_back(
        fmt::format("Nothing fits. {} devices that divide everything (--shard parameters) would "
                    "hold it, with one sequence each.",
                    record["fewest_ranks"].get<int64_t>()));
  else view.preamble.push_back("Nothing fits, nor on any number of devices up to 16384: one sequence is too much.");
  if (!others.rows.empty()) view.tables.push_back(others);
  return view;
}

}  // namespace sinter::lab
