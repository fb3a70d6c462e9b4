// Data parallelism as people read it.
#include <algorithm>
#include <map>
#include <set>

#include "lab/config_text.h"
#include "lab/ddp/bench_ddp.h"
#include "lab/ranked_view.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

bool is_ours(const Json& r) { return r.value("engine", "sinter") == "sinter"; }

std::string strategy_text(const Json& r) {
  std::string name = is_ours(r) ? r.value("strategy", "?") : r.value("engine", "?");
  return r.contains("bucket_mb") ? fmt::format("{} {} MiB", name, r["bucket_mb"].get<double>()) : name;
}

// The fastest of PyTorch's that communicates, for the same model on as many ranks.
double fastest_peer(const Json& results, const Json& ours) {
  double best = 0;
  for (const Json& r : results) {
    if (is_ours(r) || r.value("strategy", "") == "none") continue;
    bool same = true;
    for (const char* f : {"size", "d_model", "layers", "ctx", "batch", "dtype", "ranks", "threads"})
      same = same && r.value(f, Json()) == ours.value(f, Json());
    double ms = number(r, "median_ms");
    if (same && ms > 0 && (best == 0 || ms < best)) best = ms;
  }
  return best;
}

Table times(const Json& results) {
  Table t = ranked_table("A step, by strategy", {{"strategy", true},
                                                 {"median ms"},
                                                 {"±", false, 5},
                                                 {"× none", false, 3},
                                                 {"PyTorch ÷ this", false, 1},
                                                 {"comm. ms"},
                                                 {"exposed ms"},
                                                 {"overlap %"},
                                                 {"calls", false, 6},
                                                 {"tokens/s", false, 4},
                                                 {"memory a rank", false, 2},
                                                 {"status", true, 0, Column::wrap}});
  std::map<std::string, double> alone;
  for (const Json& r : results)
    if (is_ours(r) && r.value("strategy", "") == "none") alone[ranked_key(r)] = number(r, "median_ms");
  for (const Json& r : results) {
    double base = alone.contains(ranked_key(r)) ? alone[ranked_key(r)] : 0, median = number(r, "median_ms");
    double theirs = is_ours(r) && r.value("strategy", "") != "none" ? fastest_peer(results, r) : 0;
    std::vector<std::string> row = ranked_cells(r);
    auto add = [&](const std::vector<std::string>& cells) { row.insert(row.end(), cells.begin(), cells.end()); };
    add({strategy_text(r), shown(r, "median_ms"), shown(r, "std_ms", 2),
         base > 0 && median > 0 ? fmt::format("{:.2f}", median / base) : "",
         theirs > 0 && median > 0 ? fmt::format("{:.2f}", theirs / median) : ""});
    add(communication_cells(r));
    add({r.contains("collectives") ? std::to_string(r["collectives"].get<int64_t>()) : "",
         number(r, "tokens_per_s") > 0 ? grouped(int64_t(number(r, "tokens_per_s"))) : "",
         number(r, "peak_bytes") > 0 ? bytes_text(number(r, "peak_bytes")) : "", status_text(r)});
    t.rows.push_back(row);
  }
  t.drop_empty_columns();
  bool peers = std::any_of(results.begin(), results.end(), [](const Json& r) { return !is_ours(r); });
  t.notes = {
      communication_note,
      "none: every rank by itself, at the same time. The loss is averaged too, which is one of the calls.",
      "PyTorch ÷ this: its fastest step with communication, of the rows below, for the same model on as many ranks."};
  if (!peers) t.notes.pop_back();
  return t;
}

// spec: overhead = s/(n·w) + n·o.
Table bucket_model(const Json& results) {
  Table t;
  t.title = "The bucket model beside what was measured";
  t.columns = {{"mode", true}, {"ranks"},       {"bucket MiB"},         {"buckets"},
               {"model ms"},   {"measured ms"}, {"best by model", true}};
  std::map<std::string, double> alone;
  for (const Json& r : results)
    if (is_ours(r) && r.value("strategy", "") == "none") alone[ranked_key(r)] = number(r, "median_ms");
  std::set<std::string> rates;
  for (const Json& r : results) {
    if (r.value("strategy", "") != "bucketed" || !r.contains("model") || !r["model"].is_object()) continue;
    const Json& m = r["model"];
    double base = alone.contains(ranked_key(r)) ? alone[ranked_key(r)] : 0;
    t.rows.push_back({mode_text(r), std::to_string(r.value("ranks", 0)), shown(r, "bucket_mb", 3),
                      shown(m, "buckets", 3), shown(m, "overhead_ms", 3),
                      base > 0 ? significant(number(r, "median_ms") - base, 3) : "",
                      fmt::format("{} of {} MiB", significant(number(m, "best_buckets"), 2),
                                  significant(number(m, "best_bucket_mb"), 2))});
    rates.insert(fmt::format("{} ranks: {} GB/s, {} µs a call.", r.value("ranks", 0), shown(m, "bandwidth_gbs", 3),
                             shown(m, "call_us", 3)));
  }
  for (const std::string& text : rates) t.notes.push_back(text);
  t.notes.push_back(
      "model: s/(n·w) + n·o for s bytes of gradients in n buckets, w the rate of a large all-reduce and o the cost of "
      "a "
      "call, both measured here by themselves; it takes communication for free while compute runs beside it. "
      "measured: what the step takes longer than without communication.");
  return t;
}

}  // namespace

View bench_ddp_view(const Json& record) {
  View view;
  view.preamble = ranked_preamble(record);
  const Json& results = record.at("results");
  view.tables.push_back(times(results));
  if (Table t = bucket_model(results); !t.rows.empty()) view.tables.push_back(t);
  std::vector<const Json*> rows;
  for (const Json& r : results)
    if (r.contains("lanes") && r["lanes"].is_object()) rows.push_back(&r);
  std::string title = "What runs beside what: a step of rank 0, by strategy";
  if (!rows.empty()) view.picture = {title, lanes_picture(title, rows)};
  return view;
}

}  // namespace sinter::lab
