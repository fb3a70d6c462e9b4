#include "lab/ranked_view.h"

#include <algorithm>
#include <set>

#include "lab/config_text.h"
#include "lab/machine.h"
#include "system/units.h"

namespace sinter::lab {

double number(const Json& r, const char* field) {
  return r.contains(field) && r[field].is_number() ? r[field].get<double>() : 0;
}
std::string shown(const Json& r, const char* field, int digits) {
  return r.contains(field) && r[field].is_number() ? significant(r[field].get<double>(), digits) : "";
}

std::vector<std::string> ranked_preamble(const Json& record) {
  std::vector<std::string> lines = machine_lines(record.at("machine"));
  std::set<std::string> said;
  for (const Json& r : record.at("results")) {
    std::string line =
        fmt::format("{} {} of {} {}, {}: {}", r.value("ranks", 0), r.value("ranks", 0) == 1 ? "rank" : "ranks",
                    r.value("threads", 0), r.value("threads", 0) == 1 ? "thread" : "threads", r.value("backend", "?"),
                    r.value("backend_why", "?"));
    if (said.insert(line).second) lines.push_back(line);
  }
  const Json& results = record.at("results");
  bool gpus = std::any_of(results.begin(), results.end(), [](const Json& r) { return r.contains("share_a_gpu"); });
  bool share = std::any_of(results.begin(), results.end(), [](const Json& r) { return r.value("share_a_gpu", false); });
  bool mps = record.value("config", Json::object()).value("mps", false);
  if (share) lines.push_back(fmt::format("Ranks share a device{}: not a scaling result.", mps ? " under MPS" : ""));
  else if (!gpus) lines.emplace_back("Ranks share this host's cores and memory: not a scaling result.");
  for (const Json& n : record.value("notes", Json::array())) lines.push_back("note: " + n.get<std::string>());
  return lines;
}

Table ranked_table(const std::string& title, const std::vector<Column>& more) {
  Table t;
  t.title = title;
  t.columns = {{"size", true}, {"batch"}, {"ctx"}, {"dtype", true}, {"mode", true}, {"ranks"}, {"backend", true}};
  t.keys = t.columns.size();
  t.columns.insert(t.columns.end(), more.begin(), more.end());
  return t;
}

std::vector<std::string> ranked_cells(const Json& r) {
  return {size_name(r),           batch_text(r), std::to_string(r.value("ctx", 0)),
          r.value("dtype", "?"),  mode_text(r),  std::to_string(r.value("ranks", 0)),
          r.value("backend", "?")};
}

std::string ranked_key(const Json& r) {
  std::string key;
  for (const char* f : {"size", "d_model", "layers", "ctx", "batch", "accumulate", "dtype", "mode", "ranks", "backend"})
    key += r.value(f, Json()).dump() + "|";
  return key;
}

std::vector<std::string> communication_cells(const Json& r) {
  bool any = number(r, "communication_ms") > 0;
  return {any ? shown(r, "communication_ms", 3) : "", any ? shown(r, "exposed_ms", 3) : "",
          r.contains("overlap") ? fmt::format("{:.0f}", 100 * number(r, "overlap")) : ""};
}
const char* const communication_note =
    "median: of each step the slowest rank's time. Communication is the time in which a collective runs, waiting for "
    "slower ranks included; what no compute runs beside is exposed; overlap is the rest's share, as "
    "HolisticTraceAnalysis defines it. Both from recorded steps, means over ranks.";

std::string status_text(const Json& r) {
  std::string status = r.value("status", "ok");
  return status == "ok" ? "" : status == "oom" ? "OOM: " + r.value("reason", "") : status;
}

}  // namespace sinter::lab
