// Compiling as people read it.
#include "lab/compile/compile_model.h"
#include "lab/config_text.h"
#include "lab/machine.h"
#include "system/units.h"

namespace sinter::lab {

View compile_view(const Json& record) {
  View view{machine_lines(record.at("machine")), {}, {}};
  bool explain = record.at("config").value("explain", false);
  for (const Json& r : record.at("results")) {
    const Json& c = r.at("compiled");
    Table t;
    std::string passes = r.at("config").value("passes", "all");
    t.title =
        "Compiled for " + r.value("device", "?") +
        (r.value("device", "") == "cuda" && r.contains("compiled_for") ? " (" + r.value("compiled_for", "") + "): "
                                                                       : ": ") +
        config_text(r) + (passes == "all" ? "" : ", passes " + passes) +
        (r.value("part", "").empty() ? "" : ": " + r.value("part", ""));
    t.columns = {{"pass", true},         {"calls before"}, {"after"},
                 {"bytes moved before"}, {"after"},        {"what it does", true, 0, Column::wrap}};
    for (const Json& p : c.at("passes"))
      t.rows.push_back({p.at("pass"), p.at("calls_before").dump(), p.at("calls_after").dump(),
                        bytes_text(p.at("bytes_before").get<double>()), bytes_text(p.at("bytes_after").get<double>()),
                        p.value("meaning", "")});
    t.notes = {
        fmt::format(
            "arena {}; of the step's own buffers at most {} are in use at once; traced in {} ms, passes took {} ms.",
            bytes_text(c.at("arena_bytes").get<double>()), bytes_text(c.at("live_bytes").get<double>()),
            significant(c.at("trace_ms").get<double>(), 3), significant(c.at("passes_ms").get<double>(), 3)),
        "bytes moved: inputs read once and outputs written once, summed over the calls. Nothing was run."};
    view.tables.push_back(t);
    if (!explain) continue;
    Table e;
    e.columns = {{"pass", true}, {"times"}, {"what was done", true, 0, Column::wrap}};
    e.keys = 1;
    for (const Json& p : c.at("passes"))
      for (const Json& d : p.at("did")) e.rows.push_back({p.at("pass"), d.at("times").dump(), d.at("what")});
    if (!e.rows.empty()) view.tables.push_back(e);
  }
  return view;
}

}  // namespace sinter::lab
