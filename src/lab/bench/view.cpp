// The model benchmark as people read it.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "lab/bench/bench_model.h"
#include "lab/config_text.h"
#include "lab/machine.h"
#include "lab/published.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

double number(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? r[field].get<double>() : 0;
}
bool is_ours(const Json& r) { return r.value("engine", "sinter") == "sinter"; }
bool has_time(const Json& r) { return number(r, "median_ms") > 0; }

// What two rows must share to be compared: those of two engines, and variants (dtype, attention, mode) of one.
std::string key_of(const Json& r, const std::set<std::string>& but) {
  std::string key;
  for (const char* f : {"engine", "size", "d_model", "d_ff", "layers", "heads", "kv_heads", "vocab", "device", "batch",
                        "ctx", "pass", "dtype", "warmup", "deterministic"})
    if (!but.count(f)) key += r.value(f, Json()).dump() + "|";
  // A peer has an attention and a mode of its own; it was run beside this one.
  for (const char* f : {"attention", "mode", "passes"})
    if (!but.count(f)) key += r.value("config", Json::object()).value(f, Json()).dump();
  return key;
}
const std::set<std::string> engine_differs = {"engine", "deterministic"},
                            variant_differs = {"dtype", "attention", "mode", "passes"};

// Median over all rows of ours like r: ours runs before and after each peer.
double our_median(const Json& results, const Json& r) {
  std::vector<double> samples;
  for (const Json& o : results)
    if (is_ours(o) && has_time(o) && key_of(o, engine_differs) == key_of(r, engine_differs))
      for (double ms : o.at("samples_ms")) samples.push_back(ms);
  return samples.empty() ? 0 : statistics_of(samples).median;
}
double largest_of_ours(const Json& results, const Json& r, const char* field) {
  double largest = 0;
  for (const Json& o : results)
    if (is_ours(o) && key_of(o, engine_differs) == key_of(r, engine_differs))
      largest = std::max(largest, number(o, field));
  return largest;
}

std::vector<std::string> preamble_of(const Json& record) {
  std::vector<std::string> lines = machine_lines(record.at("machine"));
  std::set<std::string> said;
  auto once = [&](const std::string& line) {
    if (said.insert(line).second) lines.push_back(line);
  };
  std::set<std::string> modes;
  for (const Json& r : record.at("results"))
    if (is_ours(r)) modes.insert(r.value("mode", "?"));
  double slowest_clock = 0, max_clock = 0, power = 0;
  std::set<std::string> throttle;
  for (const Json& r : record.at("results")) {
    if (!is_ours(r)) continue;
    once(fmt::format(
        "model {}: d_model {}, d_ff {}, {} layers, {} heads, vocab {}: {} parameters in {} tensors; attention {}{}",
        r.value("size", "?"), r.value("d_model", 0), r.value("d_ff", 0), r.value("layers", 0), heads_text(r),
        r.value("vocab", 0), grouped(r.value("parameters", int64_t(0))), r.value("tensors", 0),
        attention_text(r) + (r.value("deterministic", false) ? ", deterministic" : ""),
        modes.size() == 1 ? ", " + *modes.begin() : ""));
    once(fmt::format("maths {} on {}: {}", r.value("dtype", "?"), r.value("device", "?"), r.value("maths", "?")));
    if (!r.contains("clocks")) continue;
    const Json& c = r.at("clocks");
    double sm = number(c, "sm_mhz");
    slowest_clock = slowest_clock == 0 ? sm : std::min(slowest_clock, sm);
    max_clock = std::max(max_clock, number(c, "sm_max_mhz"));
    power = std::max(power, number(c, "power_w"));
    for (const Json& t : c.value("throttle", Json::array())) throttle.insert(t.get<std::string>());
  }
  if (slowest_clock > 0) {
    std::string why;
    for (const std::string& t : throttle) why += (why.empty() ? "" : ", ") + t;
    lines.push_back(fmt::format("clocks while running: SM at least {} of {} MHz, up to {} W; throttling: {}",
                                slowest_clock, max_clock, power, why.empty() ? "none" : why));
  }
  for (const Json& n : record.value("notes", Json::array())) lines.push_back("note: " + n.get<std::string>());
  return lines;
}

const std::vector<Column> columns = {{"engine", true, 0, Column::cut},
                                     {"size", true},
                                     {"batch"},
                                     {"ctx"},
                                     {"dtype", true},
                                     {"attention", true, 1},
                                     {"mode", true},
                                     {"pass", true},
                                     {"warm-up"},
                                     {"phase", true},
                                     {"mean ms", false, 8},
                                     {"std", false, 4},
                                     {"median"},
                                     {"TFLOP/s", false, 6},
                                     {"tokens/s", false, 3},
                                     {"% of measured peak", false, 4},
                                     {"% of datasheet peak", false, 10},
                                     {"floor ms", false, 9},
                                     {"× floor", false, 2},
                                     {"peak memory", false, 2},
                                     {"speed-up", false, 1},
                                     {"theirs ÷ ours"},
                                     {"memory ours ÷ theirs", false, 5},
                                     {"published ms", true, 7, Column::wrap},
                                     {"published memory", true, 8},
                                     {"status", true, 0, Column::wrap}};

class Rows {
 public:
  explicit Rows(const Json& record)
      : results_(record.at("results")), published_(record.at("config").value("published", false)) {
    std::set<std::string> engines, warmups, attentions, modes;
    for (const Json& r : results_) {
      engines.insert(r.value("engine", "sinter"));
      warmups.insert(r.value("warmup", Json()).dump());
      attentions.insert(r.value("attention", ""));
      modes.insert(mode_text(r));
      first_variant_.emplace(key_of(r, variant_differs), &r);
    }
    several_engines_ = engines.size() > 1;
    several_warmups_ = warmups.size() > 1;
    several_attentions_ = attentions.size() > 1;
    several_modes_ = modes.size() > 1;
    mode_texts_ = mode_texts(results_);
    table_.columns = columns;
    table_.keys = 9;
  }

  Table table() {
    for (size_t i = 0; i < results_.size(); ++i) {
      const Json& r = results_[i];
      mode_ = mode_texts_[i];
      std::string status = r.at("status");
      bool oom = status == "oom", said = r.value("reason", "").empty();
      if (!oom && r.contains("phases") && r.at("phases").size() > 1)
        for (const auto& [phase, times] : r.at("phases").items()) add(r, phase, times, "");
      std::string name = oom ? "OOM" : status == "ok" ? "" : status;
      if (!name.empty() && !said) {
        table_.notes.push_back(fmt::format("({}) {}: {}", ++reasons_, name, r.value("reason", "")));
        name += fmt::format(" ({})", reasons_);
      }
      add(r, "total", oom ? Json::object() : r, name);
    }
    table_.drop_empty_columns();
    notes();
    return std::move(table_);
  }

 private:
  void add(const Json& r, const std::string& phase, const Json& times, const std::string& status) {
    bool total = phase == "total", timed = number(times, "median_ms") > 0;
    auto show = [](double v, int digits) { return v > 0 ? significant(v, digits) : ""; };
    auto fraction = [](double v) { return v > 0 ? fmt::format("{:.1f}", 100 * v) : ""; };
    double rate = number(times, "tflops"), peak = number(r, "measured_peak_tflops"),
           sheet = number(r, "datasheet_peak_tflops");
    std::string speedup, ratio, memory_ratio;
    if (total && timed) {
      const Json& first = *first_variant_.at(key_of(r, variant_differs));
      bool differs = first.at("dtype") != r.at("dtype") || first.value("attention", "") != r.value("attention", "") ||
                     mode_text(first) != mode_text(r);
      bool compared = &first != &r && differs && has_time(first);
      if (compared) speedup = significant(number(first, "median_ms") / number(r, "median_ms"), 3) + " ×";
      double ours = is_ours(r) ? 0 : our_median(results_, r);
      if (ours > 0) ratio = significant(number(r, "median_ms") / ours, 3);
      if (ours > 0 && number(r, "peak_bytes") > 0)
        memory_ratio = significant(largest_of_ours(results_, r, "peak_bytes") / number(r, "peak_bytes"), 3);
    }
    double floor = total && timed ? largest_of_ours(results_, r, "floor_ms") : 0;  // a peer's is ours
    std::string size = r.value("size", "?"), pass = r.value("pass", "?"), dtype = r.value("dtype", "?");
    long ctx = r.value("ctx", 0L);
    bool publish = published_ && is_ours(r) && r.value("batch", 0) == 4 && r.value("vocab", 0) == 10000;
    // A forward pass has one phase, shown as the total.
    bool phase_is_pass = total && pass == "forward";
    table_.rows.push_back({several_engines_ ? r.value("engine", "sinter") : "",
                           size,
                           batch_text(r),
                           std::to_string(ctx),
                           dtype,
                           several_attentions_ ? r.value("attention", "?") : "",
                           several_modes_ ? mode_ : "",
                           pass,
                           several_warmups_ ? std::to_string(r.value("warmup", 0)) : "",
                           phase,
                           show(number(times, "mean_ms"), 4),
                           timed ? significant(number(times, "std_ms"), 2) : "",
                           show(number(times, "median_ms"), 4),
                           show(rate, 3),
                           total ? show(number(r, "tokens_per_s"), 4) : "",
                           peak > 0 ? fraction(rate / peak) : "",
                           sheet > 0 ? fraction(rate / sheet) : "",
                           show(floor, 3),
                           floor > 0 ? significant(number(times, "median_ms") / floor, 3) : "",
                           total && number(r, "peak_bytes") > 0 ? bytes_text(number(r, "peak_bytes")) : "",
                           speedup,
                           ratio,
                           memory_ratio,
                           publish ? published_ms(size, pass, phase_is_pass ? "forward" : phase, dtype, ctx) : "",
                           publish && total ? published_memory(size, pass, ctx, r.value("batch", 0L)) : "",
                           status});
  }

  void notes() {
    auto note = [&](const std::string& s) { table_.notes.push_back(s); };
    auto has = [&](const std::string& header) {
      return std::any_of(table_.columns.begin(), table_.columns.end(),
                         [&](const Column& c) { return c.header == header; });
    };
    std::string peaks, sheets;
    std::set<std::string> said;
    for (const Json& r : results_) {
      if (!is_ours(r) || !has_time(r) || !said.insert(r.value("dtype", "?")).second) continue;
      if (double p = number(r, "measured_peak_tflops"); p > 0)
        peaks += fmt::format(" {} {}", r.at("dtype").get<std::string>(), significant(p, 3));
      if (double p = number(r, "datasheet_peak_tflops"); p > 0)
        sheets += fmt::format(" {} {}", r.at("dtype").get<std::string>(), significant(p, 3));
    }
    note("total: wall clock around a synchronised pass; phases: device events. std is the sample's.");
    note(
        "TFLOP/s = model FLOPs ÷ median; model FLOPs are the matrix products of a forward pass, attention in full, and "
        "twice as many "
        "for a backward pass.");
    if (!peaks.empty())
      note(
          "% of measured peak (\"mfu\" in the record) = model FLOPs ÷ median ÷ the largest product measured here "
          "(TFLOP/s:" +
          peaks + ").");
    if (!sheets.empty())
      note("% of datasheet peak = model FLOPs ÷ median ÷ the vendor's figure (TFLOP/s:" + sheets + ").");
    if (has("floor ms"))
      note(
          "floor = model FLOPs ÷ the measured peak, and for a step AdamW's bytes (7 passes over the parameters) ÷ the "
          "measured copy bandwidth; `profile model` shows where the rest goes.");
    if (has("speed-up"))
      note("speed-up = median of the first dtype, attention and mode ÷ median; they were measured in turns.");
    if (has("theirs ÷ ours"))
      note("theirs ÷ ours: medians, ours over all of its runs. Memory: peaks of both allocators, workspaces included.");
    if (has("published ms") || has("published memory")) note(published_note);
  }

  const Json& results_;
  bool published_, several_engines_ = false, several_warmups_ = false, several_attentions_ = false,
                   several_modes_ = false;
  int reasons_ = 0;  // in the notes
  std::vector<std::string> mode_texts_;
  std::string mode_;  // of the row being added
  std::map<std::string, const Json*> first_variant_;
  Table table_;
};

Table plan_table(const Json& record) {
  std::vector<std::string> categories;
  for (const Json& r : record.at("results"))
    for (const auto& [c, bytes] : r.at("memory").items())
      if (std::find(categories.begin(), categories.end(), c) == categories.end()) categories.push_back(c);
  Table t;
  t.columns = {{"size", true},          {"batch"},           {"ctx"},
               {"dtype", true},         {"attention", true}, {"mode", true},
               {"pass", true},          {"parameters"},      {"forward TFLOP", false, 9},
               {"pass TFLOP", false, 8}};
  t.keys = 7;
  for (const std::string& c : categories) t.columns.push_back({c, false, c == "workspace" ? 6 : 1});
  for (const char* c : {"need", "free"}) t.columns.push_back({c});
  t.columns.push_back({"fits", true});
  for (const Json& r : record.at("results")) {
    double flops = number(r, "flops"), forward = r.at("pass") == "forward" ? flops : flops / 3;
    std::vector<std::string> row = {r.at("size"),
                                    batch_text(r),
                                    r.at("ctx").dump(),
                                    r.at("dtype"),
                                    r.at("attention"),
                                    mode_text(r),
                                    r.at("pass"),
                                    grouped(r.at("parameters").get<int64_t>()),
                                    significant(forward / 1e12, 3),
                                    significant(flops / 1e12, 3)};
    for (const std::string& c : categories) {
      double b = r.at("memory").contains(c) ? r.at("memory").at(c).get<double>() : 0;
      row.push_back(b > 0 ? bytes_text(b) : "–");
    }
    row.push_back(bytes_text(number(r, "need_bytes")));
    row.push_back(bytes_text(number(r, "free_bytes")));
    row.push_back(r.at("status") == "ok" ? "yes" : "OOM");
    t.rows.push_back(row);
  }
  t.notes = {
      "Predicted by running each configuration on the meta device: the same calls and allocator, nothing computed.",
      "Memory by category at the peak. A 16-bit --dtype needs less for activations; a smaller --batch or --ctx always "
      "does."};
  return t;
}

std::optional<Table> startup_table(const Json& record) {
  for (const Json& r : record.at("results")) {
    if (!r.contains("startup_ms")) continue;
    Table t;
    t.title = "One-time costs of a fresh process";
    t.columns = {{"stage", true}, {"ms"}};
    for (const auto& [stage, ms] : r.at("startup_ms").items())
      t.rows.push_back({stage, significant(ms.get<double>(), 3)});
    return t;
  }
  return {};
}

// Where several ranks measured the same: how far they lie apart.
std::optional<Table> rank_table(const Json& record) {
  Table t;
  t.title = "Ranks";
  t.columns = {{"configuration", true, 0, Column::wrap},
               {"rank"},
               {"host"},
               {"GPU", true, 1, Column::cut},
               {"median ms"},
               {"min"},
               {"max"}};
  t.keys = 1;
  for (const Json& r : record.at("results")) {
    const Json ranks = r.value("ranks", Json::array());
    if (ranks.size() < 2) continue;
    for (const Json& rank : ranks) {
      std::vector<double> samples = rank.at("samples_ms");
      if (samples.empty()) continue;
      auto [low, high] = std::minmax_element(samples.begin(), samples.end());
      t.rows.push_back({config_text(r), rank.at("rank").dump(), rank.at("host").dump(), rank.value("device_uuid", ""),
                        significant(statistics_of(samples).median, 4), significant(*low, 4), significant(*high, 4)});
    }
  }
  if (t.rows.empty()) return {};
  t.drop_empty_columns();
  return t;
}

// The trajectories where warm-ups are compared; otherwise medians, along ctx if it varies.
std::optional<Chart> chart_of(const Json& record) {
  const Json& results = record.at("results");
  std::set<std::string> warmups, contexts, batches, engines, dtypes, attentions, modes, passes;
  for (const Json& r : results) {
    warmups.insert(r.value("warmup", Json()).dump());
    contexts.insert(r.value("ctx", Json()).dump());
    batches.insert(r.value("batch", Json()).dump());
    engines.insert(r.value("engine", "sinter"));
    dtypes.insert(r.value("dtype", ""));
    attentions.insert(r.value("attention", ""));
    modes.insert(mode_text(r));
    passes.insert(r.value("pass", ""));
  }
  Chart chart;
  chart.title = "sinter bench model";
  chart.y_label = "ms (median)";
  auto value_at = [&](const std::string& series, const std::string& category, std::optional<double> v) {
    auto c = std::find(chart.categories.begin(), chart.categories.end(), category);
    size_t at = size_t(c - chart.categories.begin());
    if (c == chart.categories.end()) chart.categories.push_back(category);
    auto s = std::find_if(chart.series.begin(), chart.series.end(), [&](const Series& x) { return x.name == series; });
    if (s == chart.series.end()) s = chart.series.insert(s, {series, {}});
    s->values.resize(std::max(s->values.size(), at + 1));
    s->values[at] = v;
  };
  if (warmups.size() > 1) {
    chart.kind = Chart::lines;
    chart.x_label = "pass, warm-up included";
    chart.y_label = "ms";
    for (const Json& r : results) {
      int i = 0;
      std::string name = fmt::format("{} {} {}, warm-up {}", r.value("size", ""), r.value("dtype", ""),
                                     r.value("pass", ""), r.value("warmup", 0));
      for (const Json& ms : r.at("trajectory_ms")) value_at(name, std::to_string(++i), ms.get<double>());
    }
  } else {
    bool along_ctx = contexts.size() > 1;
    chart.kind = along_ctx ? Chart::lines : Chart::bars;
    chart.x_label = along_ctx ? "context length" : "model size";
    for (const Json& r : results) {
      std::string series, size = r.value("size", "?");
      auto part = [&](bool varied, const std::string& s) {
        if (varied) series += (series.empty() ? "" : ", ") + s;
      };
      part(along_ctx, size);
      part(engines.size() > 1, r.value("engine", ""));
      part(dtypes.size() > 1, r.value("dtype", ""));
      part(attentions.size() > 1, r.value("attention", ""));
      part(modes.size() > 1, mode_text(r));
      part(passes.size() > 1, r.value("pass", ""));
      part(batches.size() > 1, "batch " + r.value("batch", Json()).dump());
      if (series.empty()) series = r.value("dtype", "") + ", " + r.value("pass", "");
      std::optional<double> v;
      if (has_time(r)) v = number(r, "median_ms");
      value_at(series, along_ctx ? r.value("ctx", Json()).dump() : size, v);
    }
  }
  for (Series& s : chart.series) s.values.resize(chart.categories.size());
  if (chart.series.empty()) return {};
  return chart;
}

}  // namespace

View bench_model_view(const Json& record) {
  if (record.at("config").value("dry_run", false)) return {preamble_of(record), {plan_table(record)}, {}};
  View view{preamble_of(record), {Rows(record).table()}, chart_of(record)};
  if (auto t = rank_table(record)) view.tables.push_back(*t);
  if (auto t = preparation_table(record)) view.tables.push_back(*t);
  if (auto t = startup_table(record)) view.tables.push_back(*t);
  return view;
}

}  // namespace sinter::lab
