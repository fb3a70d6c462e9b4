// What had to be done before a step could run at its speed, as people read it.
#include "lab/bench/bench_model.h"
#include "lab/config_text.h"
#include "system/units.h"

namespace sinter::lab {

std::optional<Table> preparation_table(const Json& record) {
  Table t = run_table("Before the first timed pass", {{"trace ms", false, 3},
                                                      {"passes ms", false, 2},
                                                      {"build ms", false, 1},
                                                      {"tuning ms"},
                                                      {"products tuned", false, 4},
                                                      {"first run ms"},
                                                      {"capture ms"},
                                                      {"compile time ms"}});
  bool warm = true;
  std::vector<std::string> modes = mode_texts(record.at("results"));
  size_t i = 0;
  for (const Json& r : record.at("results")) {
    const std::string& mode = modes[i++];
    const Json compiled = r.value("compiled", Json::object()), tuning = r.value("tuning", Json::object());
    if (compiled.empty() && tuning.value("products", 0) == 0) continue;
    warm = warm && r.value("warmup", 0) >= 2;
    double sum = 0;
    auto ms = [&](const Json& from, const char* field, double unit) {
      if (!from.contains(field) || !from[field].is_number()) return std::string();
      double v = from[field].get<double>() * unit;
      sum += v;
      return significant(v, 3);
    };
    std::vector<std::string> row = run_cells(r, mode);
    row.insert(row.end(), {ms(compiled, "trace_ms", 1), ms(compiled, "passes_ms", 1), ms(compiled, "build_ms", 1),
                           ms(tuning, "seconds", 1e3), tuning.empty() ? "" : tuning.value("products", Json()).dump(),
                           ms(compiled, "first_run_ms", 1), ms(compiled, "capture_ms", 1)});
    row.push_back(compiled.empty() ? "" : significant(sum, 3));
    t.rows.push_back(row);
  }
  if (t.rows.empty()) return {};
  t.drop_empty_columns();
  t.notes.push_back(
      "build: memory, and generated kernels. first run: the first pass beyond a later one, without what stands to its "
      "left: modules, kernels. "
      "capture: the same of the "
      "second. compile time: all of it.");
  t.notes.push_back(warm ? "None of it is in the times above."
                         : "With fewer than 2 warm-up passes, some of it is in the times above.");
  return t;
}

}  // namespace sinter::lab
