// Sharded training as people read it.
#include <algorithm>
#include <map>

#include "lab/ranked_view.h"
#include "lab/shard/bench_shard.h"
#include "memory/caching_allocator.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string size_text(const Json& r, const char* field) {
  return number(r, field) > 0 ? bytes_text(number(r, field)) : "";
}

Table times(const Json& results) {
  Table t = ranked_table("A step, by what is sharded", {{"level", true},
                                                        {"median ms"},
                                                        {"±", false, 5},
                                                        {"× none", false, 3},
                                                        {"comm. ms"},
                                                        {"exposed ms"},
                                                        {"overlap %"},
                                                        {"MB moved"},
                                                        {"calls", false, 6},
                                                        {"tokens/s", false, 4},
                                                        {"status", true, 0, Column::wrap}});
  std::map<std::string, double> whole;
  for (const Json& r : results)
    if (r.value("level", "") == "none") whole[ranked_key(r)] = number(r, "median_ms");
  for (const Json& r : results) {
    double base = whole.contains(ranked_key(r)) ? whole[ranked_key(r)] : 0, median = number(r, "median_ms");
    std::vector<std::string> row = ranked_cells(r);
    auto add = [&](const std::vector<std::string>& cells) { row.insert(row.end(), cells.begin(), cells.end()); };
    add({r.value("level", "?"), shown(r, "median_ms"), shown(r, "std_ms", 2),
         base > 0 && median > 0 ? fmt::format("{:.2f}", median / base) : ""});
    add(communication_cells(r));
    add({r.contains("bytes_moved") ? significant(number(r, "bytes_moved") / 1e6, 4) : "",
         r.contains("collectives") ? std::to_string(r["collectives"].get<int64_t>()) : "",
         number(r, "tokens_per_s") > 0 ? grouped(int64_t(number(r, "tokens_per_s"))) : "", status_text(r)});
    t.rows.push_back(row);
  }
  t.drop_empty_columns();
  t.notes = {communication_note,
             "none: data parallelism in buckets, nothing sharded. MB moved: 10⁶ bytes that each rank sends in a step, "
             "as a ring would; calls: collectives. Both from the dry run, with the loss's."};
  return t;
}

// Bytes that one parameter takes in all roles, on a rank.
std::string state_text(const Json& r) {
  double bytes = 0, parameters = number(r, "parameters");
  if (!r.contains("after_step_by") || parameters == 0) return "";
  for (MemoryCategory c :
       {MemoryCategory::parameter, MemoryCategory::low_copy, MemoryCategory::gradient, MemoryCategory::optimizer})
    bytes += number(r["after_step_by"], name_of(c));
  return fmt::format("{:.2f}", bytes / parameters);
}

Table memory(const Json& results) {
  Table t = ranked_table("Memory of a rank, by what is sharded", {{"level", true},
                                                                  {"after init"},
                                                                  {"before step"},
                                                                  {"after step"},
                                                                  {"peak"},
                                                                  {"predicted", false, 1},
                                                                  {"state B/parameter", false, 2}});
  for (const Json& r : results) {
    std::vector<std::string> row = ranked_cells(r);
    std::vector<std::string> cells = {r.value("level", "?"),
                                      size_text(r, "after_init_bytes"),
                                      size_text(r, "before_step_bytes"),
                                      size_text(r, "after_step_bytes"),
                                      size_text(r, "peak_bytes"),
                                      number(r, "predicted_peak_bytes") == number(r, "peak_bytes")
                                          ? "the same"
                                          : size_text(r, "predicted_peak_bytes"),
                                      state_text(r)};
    row.insert(row.end(), cells.begin(), cells.end());
    t.rows.push_back(row);
  }
  t.drop_empty_columns();
  t.notes = {
      "What the allocator has handed out, of the rank that holds most: once the trainer is made; with gradients, just "
      "before the optimizer uses them (of eager steps of one micro-batch, which have such a moment); after the step, "
      "with a compiled step's own buffers; at most, from before the trainer is made. predicted: the same peak from a "
      "dry run of each rank.",
      "state: parameters, 16-bit copy, gradients and optimizer's state after the step, divided by the number of "
      "parameters of the whole model."};
  return t;
}

// What tells a row's run from those of the others: "compiled, ranks 4, ".
std::string run_prefix(const Json& results, const Json& r) {
  std::string text;
  const std::vector<Column> columns = ranked_table("", {}).columns;
  for (size_t i = 0; i < columns.size(); ++i) {
    std::string mine = ranked_cells(r)[i];
    auto differs = [&](const Json& other) { return ranked_cells(other)[i] != mine; };
    if (std::none_of(results.begin(), results.end(), differs)) continue;
    text += columns[i].left ? mine + ", " : fmt::format("{} {}, ", columns[i].header, mine);
  }
  return text;
}

// What a rank held, and for what: at each moment, or of several runs, which would be too many bars, at the peak.
std::optional<Chart> chart_of(const Json& results) {
  using Moments = std::vector<std::pair<const char*, const char*>>;
  auto same_run = [&](const Json& r) { return run_prefix(results, r).empty(); };
  bool one_run = std::all_of(results.begin(), results.end(), same_run);
  Moments moments = one_run ? Moments{{"after_init_by", ", after init"},
                                      {"before_step_by", ", before step"},
                                      {"after_step_by", ", after step"},
                                      {"peak_by", ", peak"}}
                            : Moments{{"peak_by", ""}};
  Chart chart;
  chart.kind = Chart::stacked;
  chart.title = one_run ? "Memory of a rank, by what is sharded" : "Peak memory of a rank, by what is sharded";
  chart.y_label = "MiB";
  for (int c = 0; c < memory_category_count; ++c) chart.series.push_back({name_of(MemoryCategory(c)), {}});
  for (const Json& r : results)
    for (auto [field, moment] : moments) {
      if (!r.contains(field)) continue;
      chart.categories.push_back(run_prefix(results, r) + r.value("level", "?") + moment);
      for (Series& s : chart.series) s.values.emplace_back(number(r[field], s.name.c_str()) / (1 << 20));
    }
  std::erase_if(chart.series, [](const Series& s) {
    return std::all_of(s.values.begin(), s.values.end(), [](const auto& v) { return *v == 0; });
  });
  return chart.categories.empty() ? std::nullopt : std::optional(chart);
}

}  // namespace

View bench_shard_view(const Json& record) {
  const Json& results = record.at("results");
  return {ranked_preamble(record), {times(results), memory(results)}, chart_of(results)};
}

}  // namespace sinter::lab
