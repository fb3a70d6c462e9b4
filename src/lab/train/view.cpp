// Training runs as people read them: one that a record holds, or several logs.
#include <cmath>

#include "lab/config_text.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "lab/train/log.h"
#include "lab/train/train.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string loss_text(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? fmt::format("{:.4f}", r[field].get<double>()) : "";
}
std::string count_text(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? grouped(std::llround(r[field].get<double>())) : "";
}

std::string ranks_of(const Json& r) {
  if (r.value("ranks", 1) == 1) return "";
  return std::to_string(r.value("ranks", 1));
}

std::vector<std::string> run_text(const Json& r) {
  if (!r.contains("dtype")) return {r.value("name", "?"), "", "", "", ""};
  return {size_name(r), std::to_string(r.value("global_batch", 0)), std::to_string(r.value("ctx", 0)),
          r.value("dtype", "?"), mode_text(r)};
}

Table table_of(const Json& results) {
  bool logs = !results.empty() && results[0].contains("name");
  Table t;
  t.title = "Training";
  t.columns = {{logs ? "log" : "size", true},
               {"batch"},
               {"ctx"},
               {"dtype", true},
               {"mode", true},
               {"ranks", false, 4},
               {"steps"},
               {"tokens", false, 3},
               {"epochs", false, 5},
               {"first loss", false, 2},
               {"last loss"},
               {"validation"},
               {"tokens/s"},
               {"MFU", false, 6},
               {"peak memory", false, 7},
               {"seconds", false, 1},
               {"status", true}};
  for (const Json& r : results) {
    std::vector<std::string> row = run_text(r);
    for (const std::string& cell :
         {ranks_of(r), count_text(r, "steps_done"), count_text(r, "tokens"),
          r.contains("epochs") ? significant(r["epochs"].get<double>(), 2) : "", loss_text(r, "first_loss"),
          loss_text(r, "loss"), loss_text(r, "validation_loss"), count_text(r, "tokens_per_s"),
          r.contains("mfu") ? percent_text(r["mfu"].get<double>()) : "",
          r.contains("peak_bytes") ? bytes_text(r["peak_bytes"].get<double>()) : "",
          r.contains("seconds") ? significant(r["seconds"].get<double>(), 3) : "", r.value("status", "")})
      row.push_back(cell);
    t.rows.push_back(row);
    if (std::string reason = r.value("reason", ""); !reason.empty()) t.notes.push_back(reason);
  }
  t.drop_empty_columns();
  if (!logs)
    t.notes.push_back(
        "batch: sequences of a step, on all ranks. tokens/s by the median step, without evaluations. MFU against the "
        "product peak that was measured here.");
  return t;
}

std::vector<std::string> preamble_of(const Json& record) {
  std::vector<std::string> lines;
  if (record.at("machine").contains("sinter")) lines = machine_lines(record["machine"]);
  for (const Json& r : record.at("results")) {
    if (!r.contains("data") || !r["data"].is_object()) continue;
    for (const Json& f : r["data"].value("files", Json::array()))
      lines.push_back(fmt::format("{}: {}, {}, {} tokens", f.value("use", "?"), f.value("file", "?"),
                                  f.value("format", "?"), grouped(f.value("tokens", int64_t(0)))));
    lines.push_back(fmt::format("{} sequences to train on, {} to evaluate on; {} parameters",
                                grouped(r["data"].value("training_sequences", int64_t(0))),
                                grouped(r["data"].value("validation_sequences", int64_t(0))),
                                grouped(r.value("parameters", int64_t(0)))));
  }
  return lines;
}

}  // namespace

View train_view(const Json& record) {
  const Json& results = record.at("results");
  View view{preamble_of(record), {table_of(results)}, {}};
  std::vector<NamedCurve> curves;
  for (const Json& r : results) {
    if (!r.contains("curve")) continue;
    curves.push_back({r.value("name", ""), r["curve"].get<Curve>()});
    check_curve(curves.back().curve);
  }
  Chart chart = chart_of(curves);
  if (!chart.series.empty()) view.chart = std::move(chart);
  return view;
}

Json record_of_logs(const std::vector<std::string>& paths) {
  Json record = new_record("train", Json::object(), Json::object());
  for (const std::string& path : paths) {
    std::vector<Json> lines = read_log(path);
    const Json& last = lines.back();
    Curve curve = curve_of(lines);
    std::vector<double> rates;
    for (const Json& line : lines)
      if (line.contains("tokens_per_s") && line["tokens_per_s"].is_number())
        rates.push_back(line["tokens_per_s"].get<double>());
    Json row = {{"name", path}, {"steps_done", last["step"]}};
    if (!curve.loss.empty()) row["first_loss"] = curve.loss.front(), row["loss"] = curve.loss.back();
    if (!curve.validation_loss.empty()) row["validation_loss"] = curve.validation_loss.back();
    if (!rates.empty()) row["tokens_per_s"] = statistics_of(rates).median;
    if (last.contains("elapsed_s")) row["seconds"] = last["elapsed_s"];
    row["curve"] = curve;
    record["results"].push_back(std::move(row));
  }
  return record;
}

}  // namespace sinter::lab
