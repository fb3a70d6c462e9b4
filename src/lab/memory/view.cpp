// Memory as people read it.
#include <fmt/format.h>

#include "lab/config_text.h"
#include "lab/machine.h"
#include "lab/memory/memory_model.h"
#include "lab/published.h"
#include "memory/caching_allocator.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string size_text(const Json& bytes) { return bytes_text(bytes.get<double>()); }
std::string joined(const Json& names) {
  std::string text;
  for (const Json& n : names) text += (text.empty() ? "" : ", ") + n.get<std::string>();
  return text.empty() ? "none of those listed" : text;
}

std::vector<std::string> category_names() {
  std::vector<std::string> names;
  for (int i = 0; i < memory_category_count; ++i) names.push_back(name_of(MemoryCategory(i)));
  return names;
}

// Those that say least go first where there is no room for all.
void add_category_columns(Table& t) {
  for (const std::string& c : category_names())
    t.columns.push_back({c, false, c == "other" ? 3 : c == "workspace" ? 2 : 1});
}
void add_categories(std::vector<std::string>& row, const Json& by) {
  for (const std::string& c : category_names()) row.push_back(by.contains(c) ? size_text(by[c]) : "");
}

Table phase_table(const Json& r) {
  Table t;
  t.title = fmt::format(
      "{} memory: {}{}", r.at("predicted") == true ? "Predicted" : "Measured", config_text(r),
      r.contains("ranks") ? fmt::format(", rank 0 of {}, shard {}", r["ranks"].get<int64_t>(), r.value("shard", "none"))
                          : "");
  t.columns = {{"phase", true}, {"at", true}, {"allocated"}};
  add_category_columns(t);
  t.keys = 1;
  for (const Json& p : r.at("phases"))
    for (const char* at : {"peak", "end"}) {
      std::vector<std::string> row{p.at("phase"), at, size_text(p.at(std::string(at) + "_bytes"))};
      add_categories(row, p.at(std::string(at) + "_by"));
      t.rows.push_back(row);
    }
  t.drop_empty_columns();
  return t;
}

Table largest_table(const Json& r) {
  Table t;
  t.title = "Largest at the peak, the same tensor of all layers together";
  t.columns = {{"bytes"},
               {"count"},
               {"category", true},
               {"tensor", true, 2, Column::cut},
               {"allocated in", true, 0, Column::cut},
               {"source", true, 1}};
  for (const Json& x : r.at("largest"))
    t.rows.push_back({size_text(x.at("bytes")), std::to_string(x.at("count").get<int64_t>()), x.at("category"),
                      x.at("tensor"), x.at("range"), x.at("source")});
  return t;
}

std::string change_text(const Json& cards) {
  std::string card = cards.at("card");
  if (cards.at("card_fits") == true) return fmt::format("{}: fits", card);
  if (!cards.value("change", Json()).is_string()) return fmt::format("nothing that was tried fits on {}", card);
  return fmt::format("To fit on {}: {}", card, cards["change"].get<std::string>());
}

std::string ranks_needed_text(const Json& cards) {
  std::string text;
  for (const auto& [card, ranks] : cards["ranks_needed"].items())
    if (ranks.is_number()) text += fmt::format("{}{} from {}", text.empty() ? "" : ", ", card, ranks.get<int64_t>());
  return text.empty() ? "none of those listed, with up to 1024" : text;
}

std::vector<std::string> summary(const Json& r) {
  std::vector<std::string> lines;
  if (r.at("status") == "oom") lines.push_back("OOM: " + r.value("reason", ""));
  lines.push_back(fmt::format("{} parameters; {}; attention {}", grouped(r.value("parameters", int64_t(0))),
                              r.value("maths", ""), attention_text(r)));
  if (r.value("predicted", false) && r.contains("predicted_for") && r.value("device", "") == "cuda")
    lines.push_back(fmt::format("predicted for {}, with the kernels it has; --card names another",
                                r["predicted_for"].get<std::string>()));
  lines.push_back(fmt::format("peak {} allocated, {} in segments taken from the device", size_text(r.at("peak_bytes")),
                              size_text(r.at("reserved_bytes"))));
  lines.push_back(
      fmt::format("one residual-stream tensor (batch × ctx × d_model, fp32): {}", size_text(r.at("residual_bytes"))));
  if (r.contains("predicted_phases_equal"))
    lines.push_back(r["predicted_phases_equal"] == true
                        ? "prediction: equal to the byte, in every category at every phase"
                        : fmt::format("prediction: DIFFERS; it said {}", size_text(r.at("predicted_peak_bytes"))));
  if (r.contains("device_bytes"))
    lines.push_back(fmt::format(
        "on the device: {} in use, {} of it outside the allocator (CUDA context, libraries, other programs if there "
        "are any); "
        "predicted {} ({})",
        size_text(r["device_bytes"]), size_text(r.at("outside_bytes")), size_text(r.at("predicted_device_bytes")),
        percent_text(r.at("predicted_to_device").get<double>())));
  for (const Json& leak : r.at("leaks"))
    lines.push_back(fmt::format("LEAK: {} more after each pass, allocated in {}", size_text(leak.at("bytes_per_pass")),
                                leak.at("range").get<std::string>()));
  if (r.contains("cards")) {
    const Json& c = r["cards"];
    std::string line = fmt::format("needs {} of a GPU's memory; fits on: {}; not on: {}",
                                   size_text(c.at("device_bytes")), joined(c.at("fits")), joined(c.at("does_not_fit")));
    if (c.contains("card")) {
      line += ". " + change_text(c);
    }
    lines.push_back(line);
    if (c.contains("ranks_needed")) lines.push_back("with ranks that share it so: " + ranks_needed_text(c));
  }
  return lines;
}

Table overview(const Json& results) {
  Table t = run_table("", {{"ranks"}, {"shard", true}, {"peak"}});
  add_category_columns(t);
  t.columns.insert(t.columns.end(), {{"segments", false, 5},
                                     {"on the device"},
                                     {"predicted ÷ measured", false, 4},
                                     {"residual tensor", false, 6},
                                     {"prediction", true},
                                     {"does not fit on", true, 7, Column::wrap},
                                     {"published", true, 8},
                                     {"status", true, 0, Column::wrap}});
  bool published = false;
  for (const Json& r : results) {
    std::vector<std::string> row = run_cells(r, r.contains("mode") ? mode_text(r) : "");
    row.push_back(r.contains("ranks") ? std::to_string(r["ranks"].get<int64_t>()) : "");
    row.push_back(r.value("shard", ""));
    row.push_back(size_text(r.at("peak_bytes")));
    add_categories(row, r.at("peak_by"));
    row.push_back(size_text(r.at("reserved_bytes")));
    row.push_back(r.contains("device_bytes") ? size_text(r["device_bytes"]) : "");
    row.push_back(r.contains("predicted_to_device") ? fmt::format("{:.3f}", r["predicted_to_device"].get<double>())
                                                    : "");
    row.push_back(size_text(r.at("residual_bytes")));
    row.push_back(r.contains("predicted_phases_equal") ? (r["predicted_phases_equal"] == true ? "equal" : "DIFFERS")
                                                       : "");
    const Json cards = r.value("cards", Json::object());
    std::string not_on = cards.contains("does_not_fit") ? joined(cards["does_not_fit"]) : "";
    if (cards.contains("ranks_needed")) not_on += "; fits on " + ranks_needed_text(cards);
    else if (cards.contains("card") && cards["card_fits"] == false) not_on += "; " + change_text(cards);
    row.push_back(not_on);
    row.push_back(published_memory(r.value("size", ""), r.value("pass", ""), r.value("ctx", 0L), r.value("batch", 0L)));
    published = published || !row.back().empty();
    row.push_back(r.at("status") == "oom" ? "OOM, predicted: " + r.value("reason", "")
                  : r.at("leaks").empty() ? ""
                                          : "LEAK in " + r["leaks"].at(0).at("range").get<std::string>());
    t.rows.push_back(row);
  }
  t.drop_empty_columns();
  t.notes.push_back(
      "By category at the peak. segments: taken from the device; on the device: with the CUDA context and libraries.");
  if (published) t.notes.push_back(published_note);
  return t;
}

}  // namespace

View memory_view(const Json& record) {
  View v;
  v.preamble = machine_lines(record.at("machine"));
  const Json& results = record.at("results");
  if (record.at("config").value("predict", false))
    v.preamble.push_back("predicted on the meta device: the same calls and allocator, nothing computed or allocated");
  if (results.size() != 1) {
    v.tables.push_back(overview(results));
    return v;
  }
  const Json& r = results[0];
  Table phases = phase_table(r);
  phases.notes = summary(r);
  v.tables.push_back(std::move(phases));
  v.tables.push_back(largest_table(r));
  if (r.contains("timeline")) v.timeline = &r["timeline"];
  return v;
}

}  // namespace sinter::lab
