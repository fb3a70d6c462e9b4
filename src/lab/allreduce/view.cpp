// The all-reduce benchmark as people read it.
#include <algorithm>
#include <map>
#include <set>

#include "lab/allreduce/bench_allreduce.h"
#include "lab/machine.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

double number(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? r[field].get<double>() : 0;
}
std::string show(double v, int digits) { return v > 0 ? significant(v, digits) : ""; }
std::string mb_text(const Json& r) { return fmt::format("{:g}", number(r, "bytes") / 1e6); }

std::string key_of(const Json& r) {
  return r.at("ranks").dump() + "|" + r.at("bytes").dump() + "|" + r.at("dtype").dump();
}

bool varies(const Json& results, const char* field) {
  std::set<Json> values;
  for (const Json& r : results) values.insert(r.at(field));
  return values.size() > 1;
}

Table times_table(const Json& results) {
  Table t;
  t.columns = {{"ranks"},
               {"MB"},
               {"dtype", true},
               {"backend", true},
               {"runs", false, 2},
               {"ms"},
               {"± ranks", false, 1},
               {"algbw GB/s"},
               {"busbw GB/s"},
               {"against gloo"},
               {"against PyTorch", false, 3},
               {"verified", true},
               {"status", true, 0, Column::wrap}};
  t.keys = 3;
  std::map<std::string, double> gloo, torch;
  for (const Json& r : results) {
    if (r.at("backend") == "gloo") gloo.emplace(key_of(r), number(r, "median_ms"));
    if (r.at("backend") == "torch-gloo") torch.emplace(key_of(r), number(r, "median_ms"));
  }
  int reasons = 0;  // in the notes
  for (const Json& r : results) {
    std::string status = r.at("status"), name = status == "ok" ? "" : status == "oom" ? "OOM" : status;
    if (std::string reason = r.value("reason", ""); !name.empty() && !reason.empty()) {
      t.notes.push_back(fmt::format("({}) {}: {}", ++reasons, name, reason));
      name += fmt::format(" ({})", reasons);
    }
    double ms = number(r, "median_ms"), theirs = gloo.count(key_of(r)) ? gloo[key_of(r)] : 0;
    double torchs = torch.count(key_of(r)) ? torch[key_of(r)] : 0;
    bool ours = r.at("backend") != "torch-gloo", compared = r.at("backend") == "shm" && ms > 0 && theirs > 0;
    t.rows.push_back({r.at("ranks").dump(), mb_text(r), r.at("dtype"), r.at("backend"),
                      ms > 0 ? std::to_string(r.at("samples_ms").size()) : "", show(ms, 4),
                      ms > 0 ? significant(number(r, "spread_ms"), 2) : "", show(number(r, "algbw_gbs"), 3),
                      show(number(r, "busbw_gbs"), 3), compared ? significant(theirs / ms, 3) + " ×" : "",
                      ours && ms > 0 && torchs > 0 ? significant(torchs / ms, 3) + " ×" : "",
                      r.contains("verified") ? (r["verified"].get<bool>() ? "yes" : "NO") : "", name});
  }
  t.drop_empty_columns();
  t.notes.push_back(
      "ms: median over runs of the slowest rank's time, from a barrier to its result; ± ranks: how far the ranks' own "
      "medians lie apart. MB are 10⁶ bytes.");
  t.notes.push_back(
      "algbw = bytes ÷ time; busbw = algbw · 2(n − 1)/n, what each of n ranks must send and receive at least, so that "
      "numbers of ranks can be compared. Ranks of one host share its memory's bandwidth and its cores, so that busbw "
      "falls with n all the same.");
  if (!gloo.empty()) t.notes.push_back("against gloo: gloo's median ÷ this one's; they were measured in turns.");
  if (!torch.empty())
    t.notes.push_back(
        "torch-gloo: PyTorch's all_reduce over Gloo, in ranks of its own, in turns with ours; its sums are not "
        "checked.");
  t.notes.push_back("verified: every element of every run, on every rank, is the exact sum.");
  return t;
}

Table fits_table(const Json& record) {
  Table t;
  t.title = "Time as a line: alpha + bytes · beta";
  t.columns = {{"ranks"},       {"dtype", true},   {"backend", true}, {"alpha µs"},
               {"1/beta GB/s"}, {"largest error"}, {"sizes"}};
  t.keys = 2;
  for (const Json& f : record.value("fits", Json::array())) {
    if (!f.contains("alpha_ms")) continue;
    double beta = number(f, "beta_ms_per_byte");
    t.rows.push_back({f.at("ranks").dump(), f.at("dtype"), f.at("backend"), significant(1e3 * number(f, "alpha_ms"), 3),
                      beta > 0 ? significant(1e-6 / beta, 3) : "", percent_text(number(f, "largest_error")),
                      std::to_string(f.at("curve").size())});
  }
  t.notes = {
      "Least squares of relative errors. Where the largest error is large, as where a cache holds the small sizes, "
      "plan with the measured curve, which the record has."};
  return t;
}

std::optional<Chart> chart_of(const Json& results) {
  std::set<int64_t> sizes;
  for (const Json& r : results) sizes.insert(r.at("bytes").get<int64_t>());
  Chart chart;
  chart.title = "sinter bench allreduce";
  chart.kind = sizes.size() > 1 ? Chart::lines : Chart::bars;
  chart.x_label = "MB (10⁶ bytes)";
  chart.y_label = "busbw, GB/s";
  for (int64_t bytes : sizes) chart.categories.push_back(fmt::format("{:g}", double(bytes) / 1e6));
  bool types = varies(results, "dtype"), any = false;
  for (const Json& r : results) {
    std::string name = fmt::format("{}, {} ranks", r.value("backend", "?"), r.value("ranks", 0));
    if (types) name += ", " + r.value("dtype", "?");
    auto s = std::find_if(chart.series.begin(), chart.series.end(), [&](const Series& x) { return x.name == name; });
    if (s == chart.series.end()) s = chart.series.insert(s, {name, std::vector<std::optional<double>>(sizes.size())});
    double rate = number(r, "busbw_gbs");
    if (rate <= 0) continue;
    s->values[size_t(std::distance(sizes.begin(), sizes.find(r.at("bytes").get<int64_t>())))] = rate;
    any = true;
  }
  if (!any) return {};
  return chart;
}

}  // namespace

View bench_allreduce_view(const Json& record) {
  View v;
  const Json &config = record.at("config"), &results = record.at("results");
  v.preamble = machine_lines(record.at("machine"));
  int hosts = config.value("hosts", 1);
  bool gpus = config.contains("share_a_gpu");
  v.preamble.push_back(fmt::format("ranks: {} on {} host{} with {} cores ({}); {}{}", config.value("world", 0), hosts,
                                   hosts == 1 ? "" : "s", config.value("cores", 0), config.value("launcher", "?"),
                                   gpus ? "numbers lie on GPUs" : "a collective runs on one thread of each",
                                   config.value("deterministic", false) ? "; gloo adds in their order too" : ""));
  if (config.value("share_a_gpu", false))
    v.preamble.push_back(
        fmt::format("Ranks share a device{}: not a scaling result.", config.value("mps", false) ? " under MPS" : ""));
  for (const Json& n : record.value("notes", Json::array())) v.preamble.push_back("note: " + n.get<std::string>());
  v.tables.push_back(times_table(results));
  if (Table t = fits_table(record); !t.rows.empty()) v.tables.push_back(std::move(t));
  v.chart = chart_of(results);
  return v;
}

}  // namespace sinter::lab
