// A result's configuration as people read it, from the record.
#pragma once
#include <fmt/format.h>

#include "compile/passes.h"
#include "lab/table.h"
#include "system/json.h"

namespace sinter::lab {

// "16", or "16/4" with fewer key/value heads.
inline std::string heads_text(const Json& r) {
  int64_t heads = r.value("heads", 0), shared = r.value("kv_heads", heads);
  return shared == heads ? std::to_string(heads) : fmt::format("{}/{}", heads, shared);
}
inline std::string size_name(const Json& r) {
  if (r.contains("head_dim"))
    return fmt::format("{} attention, {} × d {}", r.value("attention", "?"), heads_text(r), r.value("head_dim", 0));
  if (r.contains("size")) return r["size"];
  return fmt::format("{}×{}, {} heads, d_ff {}", r.value("layers", 0), r.value("d_model", 0), r.value("heads", 0),
                     r.value("d_ff", 0));
}
// "dce+plan", or "all but fold" where most are on.
inline std::string some_passes(const std::string& named) {
  std::string off;
  size_t are_off = 0, count = compile::all_passes().size();
  for (const compile::Pass& p : compile::all_passes()) {
    if (("+" + named + "+").find(fmt::format("+{}+", p.name)) != std::string::npos) continue;
    off += (off.empty() ? "" : ", ") + std::string(p.name);
    ++are_off;
  }
  return are_off == 0 || are_off > count / 2 ? named : "all but " + off;
}
// "eager", "compiled", or "compiled: dce+plan" where not all passes are on.
inline std::string mode_text(const Json& r) {
  std::string mode = r.value("mode", "?");
  const Json passes = r.value("passes", Json());
  return passes.is_string() && passes != "all" ? mode + ": " + some_passes(passes) : mode;
}
// The compiler's passes added one by one are named by what each adds.
inline std::vector<std::string> mode_texts(const Json& results) {
  std::vector<std::string> texts;
  std::string before;  // the passes of the row above
  for (const Json& r : results) {
    const Json passes = r.value("passes", Json());
    std::string now = passes.is_string() ? passes.get<std::string>() : "", added;
    if (before == "none" && now != "all" && now.find('+') == std::string::npos) added = now;
    else if (!before.empty() && now.rfind(before + "+", 0) == 0) added = now.substr(before.size() + 1);
    texts.push_back(added.empty() ? mode_text(r) : "+ " + added);
    before = now;
  }
  return texts;
}
// "4", or "8 × 4": micro-batches that make a step.
inline std::string batch_text(const Json& r) {
  int64_t batch = r.value("batch", 0), times = r.value("accumulate", 1);
  return times > 1 ? fmt::format("{} × {}", times, batch) : std::to_string(batch);
}
inline std::string config_text(const Json& r) {
  std::string attention = r.contains("head_dim") ? "" : r.value("attention", "?") + " attention, ";
  return fmt::format("{}, batch {}, ctx {}, {}, {}{}", size_name(r), batch_text(r), r.value("ctx", 0),
                     r.value("dtype", "?"), attention, r.value("pass", "?"));
}
// "flash (auto: …)": what ran, and how it was chosen where it was not asked for.
inline std::string attention_text(const Json& r) {
  std::string kind = r.value("attention", "?"), why = r.value("attention_why", "");
  return why.rfind("auto", 0) == 0 ? fmt::format("{} ({})", kind, why) : kind;
}
// The columns that say which run a row is about, and what stands in them; `mode` is mode_text, or what an ablation
// adds.
inline Table run_table(const std::string& title, const std::vector<Column>& more) {
  Table t;
  t.title = title;
  t.columns = {{"size", true},      {"batch"},      {"ctx"},       {"dtype", true},
               {"attention", true}, {"mode", true}, {"pass", true}};
  t.keys = t.columns.size();
  t.columns.insert(t.columns.end(), more.begin(), more.end());
  return t;
}
inline std::vector<std::string> run_cells(const Json& r, const std::string& mode) {
  return {size_name(r),
          batch_text(r),
          std::to_string(r.value("ctx", 0)),
          r.value("dtype", "?"),
          r.value("attention", "?"),
          mode,
          r.value("pass", "?")};
}
inline std::string passes_text(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "pass" : "passes"); }

}  // namespace sinter::lab
