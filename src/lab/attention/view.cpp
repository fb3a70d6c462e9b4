// The attention benchmark as people read it.
#include <algorithm>
#include <map>
#include <set>

#include "lab/attention/bench_attention.h"
#include "lab/config_text.h"
#include "lab/machine.h"
#include "lab/published.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

double number(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? r[field].get<double>() : 0;
}
bool is_ours(const Json& r) { return r.at("engine") == "sinter"; }
const Json& phase(const Json& r, const char* name) {
  static const Json none = Json::object();
  if (std::string(name) == "wall") return r.contains("wall") ? r["wall"] : none;
  return r.contains("phases") && r["phases"].contains(name) ? r["phases"][name] : none;
}
double median(const Json& r, const char* name) { return number(phase(r, name), "median_ms"); }
std::string show(double v, int digits) { return v > 0 ? significant(v, digits) : ""; }
std::string percent(double v) { return v > 0 ? fmt::format("{:.1f}", 100 * v) : ""; }
std::string size_text(double bytes) { return bytes > 0 ? bytes_text(bytes) : ""; }

// One shape, pass and dtype: what its rows are compared over.
std::string shape_key(const Json& r) {
  std::string key;
  for (const char* f : {"batch", "heads", "kv_heads", "head_dim", "causal", "ctx", "dtype", "pass"})
    key += r.value(f, Json()).dump() + "|";
  return key;
}
std::string name_of_row(const Json& r) {
  std::string name = r.at("attention");
  if (!is_ours(r)) name = r.at("engine");
  if (r.contains("tile")) name += fmt::format(", tile {}", r["tile"].get<int>());
  if (r.value("mode", "") == "compiled") name += ", compiled";
  if (r.value("passes", "all") != "all") name += fmt::format(": {}", r["passes"].get<std::string>());
  if (r.value("pass", "") == "forward") name += ", forward only";
  return name + (r.value("deterministic", false) ? ", deterministic" : "");
}

const std::vector<Column> key_columns = {
    {"batch"}, {"heads"}, {"d"}, {"mask", true}, {"dtype", true}, {"ctx"}, {"attention", true, 0, Column::cut}};
std::vector<std::string> keys_of(const Json& r) {
  return {std::to_string(r.value("batch", 0)),
          heads_text(r),
          std::to_string(r.value("head_dim", 0)),
          r.value("causal", true) ? "causal" : "full",
          r.value("dtype", "?"),
          std::to_string(r.value("ctx", 0)),
          name_of_row(r)};
}

class Tables {
 public:
  explicit Tables(const Json& record) : results_(record.at("results")) {
    for (const Json& r : results_) {
      if (is_ours(r) && r.at("status") != "oom") first_.emplace(shape_key(r), &r);
      if (is_ours(r) && r.value("mode", "eager") == "eager") eager_.emplace(shape_key(r) + name_of_row(r), &r);
      if (is_ours(r) && !r.value("deterministic", false)) plain_.emplace(shape_key(r) + name_of_row(r), &r);
    }
  }

  Table times() const {
    Table t = table("Time (ms, medians)", {{"forward"},
                                           {"± forward", false, 9},
                                           {"backward"},
                                           {"± backward", false, 9},
                                           {"both"},
                                           {"± both", false, 9},
                                           {"with host", false, 7},
                                           {"TFLOP/s forward", false, 6},
                                           {"TFLOP/s backward", false, 6},
                                           {"TFLOP/s both", false, 3},
                                           {"speed-up", false, 1},
                                           {"against eager fwd/bwd/both", true, 2},
                                           {"compile ms", false, 8},
                                           {"cost of determinism", false, 1},
                                           {"published fwd/bwd/both", true, 4},
                                           {"status", true}});
    int reasons = 0;  // in the notes
    bool published = false;
    for (const Json& r : results_) {
      std::vector<std::string> row = keys_of(r);
      for (const char* p : {"forward", "backward", "both"}) {
        row.push_back(show(median(r, p), 4));
        row.push_back(median(r, p) > 0 ? significant(number(phase(r, p), "std_ms"), 2) : "");
      }
      row.push_back(show(median(r, "wall"), 4));
      for (const char* p : {"forward", "backward", "both"}) row.push_back(show(number(phase(r, p), "tflops"), 3));
      row.push_back(speed_up(r));
      row.push_back(against_eager(r));
      row.push_back(compile_ms(r));
      row.push_back(determinism(r));
      row.push_back(is_ours(r) ? published_attention(r) : "");
      published = published || !row.back().empty();
      std::string status = r.at("status"), reason = r.value("reason", "");
      std::string name = status == "ok" ? "" : status == "oom" ? "OOM" : status == "unavailable" ? "none" : status;
      if (!name.empty() && !reason.empty()) {
        t.notes.push_back(fmt::format("({}) {}: {}", ++reasons, name, reason));
        name += fmt::format(" ({})", reasons);
      }
      row.push_back(name);
      t.rows.push_back(row);
    }
    t.drop_empty_columns();
    t.notes.push_back(
        "Device time between events, with the device kept busy until the pass is submitted; with host: wall clock of a "
        "pass as a program calls it. ± is the sample's standard deviation.");
    t.notes.push_back(
        "TFLOP/s = 4 · batch · heads · ctx² · d, half of it under the causal mask; backward 2.5 times that. speed-up: "
        "both "
        "(or forward), against the first row of its shape.");
    std::set<std::string> algorithms;
    for (const Json& r : results_)
      if (r.contains("algorithm") && algorithms.insert(r["algorithm"]).second)
        t.notes.push_back(r["algorithm"].get<std::string>() + ".");
    if (!algorithms.empty())
      t.notes.push_back(
          "against eager: eager ÷ compiled, of the same attention. Forward and backward are traced as one and replayed "
          "as two "
          "segments, so that each can be timed.");
    if (published) t.notes.push_back(published_attention_note);
    return t;
  }

  Table light() const {
    Table t = table(
        "Speed of light",
        {{"phase", true}, {"ms"}, {"products alone"}, {"exp unit alone"}, {"binds", true}, {"% of speed of light"}});
    t.keys = key_columns.size();
    std::set<std::string> said;
    for (const Json& r : results_) {
      for (const char* p : {"forward", "backward", "both"}) {
        const Json& x = phase(r, p);
        if (!x.contains("of_light")) continue;
        std::vector<std::string> row = keys_of(r);
        for (const std::string& s :
             {std::string(p), show(number(x, "median_ms"), 4), show(number(x, "product_limit_ms"), 4),
              show(number(x, "exp_limit_ms"), 4), x.value("binds", ""), percent(number(x, "of_light"))})
          row.push_back(s);
        t.rows.push_back(row);
      }
      if (number(r, "product_tflops") > 0)
        said.insert(fmt::format(
            "{}: products at {} TFLOP/s{}", r.at("dtype").get<std::string>(),
            significant(number(r, "product_tflops"), 3),
            number(r, "exp_tera_per_s") > 0
                ? fmt::format(", exponentials at {} · 10¹² a second", significant(number(r, "exp_tera_per_s"), 3))
                : ""));
    }
    t.drop_empty_columns();
    for (const std::string& s : said) t.notes.push_back(s + ".");
    t.notes.push_back(
        "products alone: at the rate of the largest product measured here (fp32 flash on a GPU: three tf32 products); "
        "exp "
        "unit alone: one exponential per visible pair forward and one backward, 16 per clock and multiprocessor. The "
        "slower "
        "binds; the speed of light is its time.");
    return t;
  }

  Table memory() const {
    Table t = table("Memory held before backward", {{"q", false, 5},
                                                    {"k", false, 5},
                                                    {"v", false, 5},
                                                    {"o", false, 5},
                                                    {"L", false, 4},
                                                    {"probabilities", false, 2},
                                                    {"held"},
                                                    {"predicted", false, 3},
                                                    {"peak", false, 1}});
    for (const Json& r : results_) {
      if (number(r, "held_bytes") == 0 && number(r, "predicted_held_bytes") == 0) continue;
      std::vector<std::string> row = keys_of(r);
      const Json saved = r.value("saved", Json::object());
      for (const char* name : {"q", "k", "v", "o", "L", "probabilities"}) row.push_back(size_text(number(saved, name)));
      row.push_back(size_text(number(r, "held_bytes")));
      row.push_back(size_text(number(r, "predicted_held_bytes")));
      row.push_back(size_text(number(r, "peak_bytes")));
      t.rows.push_back(row);
    }
    t.drop_empty_columns();
    t.notes.push_back(
        "held: after forward, with q, k, v and o, without o's gradient; compiled: what the plan keeps. L: the "
        "logarithm of a row's sum. Rows that do "
        "not "
        "fit are counted by a dry run.");
    return t;
  }

  // Theirs ÷ ours, for each of our variants of the shape.
  Table ratios() const {
    Table t = table("Theirs ÷ ours (medians; ours ran before and after)", {{"against", true, 0, Column::cut},
                                                                           {"forward"},
                                                                           {"backward"},
                                                                           {"both"},
                                                                           {"with host", false, 1},
                                                                           {"held, ours ÷ theirs", false, 2}});
    for (const Json& ours : results_) {
      if (!is_ours(ours) || ours.at("status") == "oom") continue;
      for (const Json& theirs : results_) {
        if (is_ours(theirs) || theirs.at("status") != "ok" || shape_key(theirs) != shape_key(ours)) continue;
        std::vector<std::string> row = keys_of(ours);
        row.push_back(theirs.at("engine"));
        for (const char* p : {"forward", "backward", "both", "wall"})
          row.push_back(median(ours, p) > 0 ? show(median(theirs, p) / median(ours, p), 3) : "");
        double held = number(theirs, "held_bytes");
        row.push_back(held > 0 ? show(number(ours, "held_bytes") / held, 3) : "");
        t.rows.push_back(row);
      }
    }
    t.drop_empty_columns();
    return t;
  }

 private:
  static Table table(const char* title, std::vector<Column> more) {
    Table t;
    t.title = title;
    t.columns = key_columns;
    t.columns.insert(t.columns.end(), more.begin(), more.end());
    t.keys = key_columns.size() - 1;
    return t;
  }
  static double whole(const Json& r) { return median(r, "both") > 0 ? median(r, "both") : median(r, "forward"); }

  std::string speed_up(const Json& r) const {
    auto first = first_.find(shape_key(r));
    if (!is_ours(r) || first == first_.end() || first->second == &r || whole(r) == 0) return "";
    return significant(whole(*first->second) / whole(r), 3) + " ×";
  }
  // Each phase's eager time ÷ its compiled time, of the same attention.
  std::string against_eager(const Json& r) const {
    if (!is_ours(r) || r.value("mode", "") != "compiled") return "";
    Json other = r;
    other["mode"] = "eager";
    other.erase("passes");
    auto eager = eager_.find(shape_key(r) + name_of_row(other));
    if (eager == eager_.end()) return "";
    std::string text;
    for (const char* p : {"forward", "backward", "both"})
      if (median(r, p) > 0 && median(*eager->second, p) > 0)
        text += (text.empty() ? "" : "/") + significant(median(*eager->second, p) / median(r, p), 3);
    return text.empty() ? "" : text + " ×";
  }
  static std::string compile_ms(const Json& r) {
    const Json c = r.value("compiled", Json::object());
    return show(number(c, "trace_ms") + number(c, "passes_ms") + number(c, "build_ms"), 2);
  }
  std::string determinism(const Json& r) const {
    if (!is_ours(r) || !r.value("deterministic", false) || whole(r) == 0) return "";
    Json other = r;
    other["deterministic"] = false;
    auto plain = plain_.find(shape_key(r) + name_of_row(other));
    if (plain == plain_.end() || whole(*plain->second) == 0) return "";
    return significant(whole(r) / whole(*plain->second), 3) + " ×";
  }

  const Json& results_;
  std::map<std::string, const Json*> first_, plain_, eager_;
};

Table growth_table(const Json& record) {
  Table t;
  t.title = "How held memory grows with ctx";
  t.columns = {{"attention", true}, {"mode", true}, {"dtype", true}, {"batch"},
               {"heads"},           {"d"},          {"exponent"},    {"points"}};
  for (const Json& g : record.value("growth", Json::array()))
    t.rows.push_back({g.at("attention"), g.value("mode", "eager"), g.at("dtype"), g.at("batch").dump(), heads_text(g),
                      g.at("head_dim").dump(), fmt::format("{:.3f}", g.at("exponent").get<double>()),
                      g.at("points").dump()});
  t.notes.push_back("held ~ ctx to this power: least squares over the logarithms.");
  return t;
}

// Rate along ctx, or time where there is one ctx.
std::optional<Chart> chart_of(const Json& results) {
  std::set<int64_t> contexts;
  for (const Json& r : results) contexts.insert(r.at("ctx").get<int64_t>());
  bool along = contexts.size() > 1;
  Chart chart;
  chart.title = "sinter bench attention";
  chart.kind = along ? Chart::lines : Chart::bars;
  chart.x_label = along ? "context length" : "phase";
  chart.y_label = along ? "TFLOP/s, forward and backward" : "ms (median)";
  if (along)
    for (int64_t n : contexts) chart.categories.push_back(std::to_string(n));
  else chart.categories = {"forward", "backward", "both"};
  auto varies = [&](const char* field) {
    std::set<Json> values;
    for (const Json& r : results) values.insert(r.value(field, Json()));
    return values.size() > 1;
  };
  bool batches = varies("batch"), heads = varies("heads"), kv_heads = varies("kv_heads") && !heads;
  std::map<std::string, size_t> at;
  for (const Json& r : results) {
    if (r.at("status") == "unavailable") continue;
    std::string name = fmt::format("{}, {}, d {}", name_of_row(r), r.value("dtype", ""), r.value("head_dim", 0));
    if (batches) name += fmt::format(", batch {}", r.value("batch", 0));
    if (heads || kv_heads) name += fmt::format(", heads {}/{}", r.value("heads", 0), r.value("kv_heads", 0));
    if (!at.count(name)) at[name] = chart.series.size(), chart.series.push_back({name, {}});
    auto& values = chart.series[at[name]].values;
    values.resize(chart.categories.size());
    auto value = [](double v) { return v > 0 ? std::optional(v) : std::nullopt; };
    if (along) {
      size_t i = size_t(std::distance(contexts.begin(), contexts.find(r.at("ctx").get<int64_t>())));
      const char* p = r.at("pass") == "forward" ? "forward" : "both";
      values[i] = value(number(phase(r, p), "tflops"));
    } else {
      for (size_t i = 0; i < 3; ++i) values[i] = value(median(r, chart.categories[i].c_str()));
    }
  }
  if (chart.series.empty()) return {};
  return chart;
}

}  // namespace

View bench_attention_view(const Json& record) {
  View v;
  v.preamble = machine_lines(record.at("machine"));
  std::set<std::string> said;
  for (const Json& r : record.at("results")) {
    if (!is_ours(r)) continue;
    std::string why = r.value("attention_why", "");
    if (why.rfind("auto", 0) == 0 && said.insert(attention_text(r)).second)
      v.preamble.push_back("attention " + attention_text(r));
    std::string maths =
        fmt::format("maths {} on {}: {}", r.value("dtype", "?"), r.value("device", "?"), r.value("maths", "?"));
    if (said.insert(maths).second) v.preamble.push_back(maths);
  }
  for (const Json& n : record.value("notes", Json::array())) v.preamble.push_back("note: " + n.get<std::string>());
  Tables tables(record);
  for (Table t : {tables.times(), tables.light(), tables.memory(), growth_table(record), tables.ratios()})
    if (!t.rows.empty()) v.tables.push_back(std::move(t));
  v.chart = chart_of(record.at("results"));
  return v;
}

}  // namespace sinter::lab
