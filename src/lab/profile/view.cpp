// A profile as people read it.
#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/check.h"
#include "lab/config_text.h"
#include "lab/machine.h"
#include "lab/profile/profile_model.h"
#include "profile/kernel_table.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

std::string ms_text(const Json& ms) { return significant(ms.get<double>(), 4); }
std::string share_text(const Json& share) { return percent_text(share.get<double>()); }
std::string count_text(const Json& n) {
  double x = n.get<double>();
  return x == double(int64_t(x)) ? grouped(int64_t(x)) : significant(x, 4);
}
std::string times_text(const Json& n) { return n.get<double>() == 1 ? "once" : count_text(n) + " times"; }
std::string cut(const std::string& name, size_t length = 72) {
  std::string s = short_name(name);
  return s.size() <= length ? s : s.substr(0, length - 1) + "…";
}

const Json* phase_named(const Json& r, const std::string& name) {
  for (const Json& p : r.at("phases"))
    if (p.at("phase") == name) return &p;
  return nullptr;
}
const Json& whole(const Json& r) { return r.at("phases").back(); }

std::string top_text(const Json& phase) {
  const Json& t = phase.at("top");
  return fmt::format("{}: {}, {} of the {}", cut(t.at("name")), times_text(t.at("instances")),
                     share_text(t.at("share")), phase.at("phase").get<std::string>());
}

std::string others_text(const Json& phase) {
  std::string text;
  for (const Json& k : phase.at("non_gemm_over_1_percent"))
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", cut(k.at("name"), 40), share_text(k.at("share")));
  return text.empty() ? "none" : text;
}

std::string parts_text(const Json& a, const char* what, const char* first, const char* second, double unit,
                       const char* name) {
  return fmt::format("{} {} against {} {}: {}", significant(a.at(first).get<double>() / unit, 3), name,
                     significant(a.at(second).get<double>() / unit, 3), name, percent_text(a.at(what).get<double>()));
}

// The questions of one configuration.
Table answers(const Json& r) {
  Table t;
  t.title = "Answers: " + config_text(r);
  t.columns = {{"question", true, 0, Column::wrap}, {"answer", true, 0, Column::wrap}};
  auto add = [&](const std::string& q, const std::string& a) { t.rows.push_back({q, a}); };
  for (const char* phase : {"forward", "backward", "whole pass"})
    if (const Json* p = phase_named(r, phase))
      add(fmt::format("which kernel takes most of the {}?", phase), top_text(*p));
  for (const Json& p : r.at("phases"))
    add(fmt::format("how much of the {} are matrix products?", p.at("phase").get<std::string>()),
        share_text(p.at("gemm_share")));
  if (const Json* p = phase_named(r, "forward")) add("other kernels over 1 % of the forward", others_text(*p));
  add("other kernels over 1 % of it all", others_text(whole(r)));
  const Json& parts = r.at("attention_parts");
  for (const char* phase : {"forward", "backward"})
    if (parts.contains(phase)) {
      add(fmt::format("attention, {}: softmax against products, in time", phase),
          parts_text(parts[phase], "time_ratio", "softmax_ms", "products_ms", 1, "ms"));
      add(fmt::format("attention, {}: softmax against products, in FLOPs", phase),
          parts_text(parts[phase], "flop_ratio", "softmax_flops", "products_flops", 1e6, "MFLOP"));
    }
  if (parts.empty())
    add("attention: softmax against products",
        r.value("attention", "naive") != "naive"
            ? fmt::format("one kernel does both ({}); --attention naive separates them", attention_text(r))
            : "not told apart here: the attention of this model enters no ranges scores, softmax and value");
  const Json& d = r.at("device_time");
  bool cpu = r.at("profiler").at("source") == "clock";
  add(cpu ? "time in ops against the wall clock" : "device time against the wall clock",
      fmt::format("{} ms busy of {} ms ({})", ms_text(d.at("busy_ms")), ms_text(r.at("profiled_mean_ms")),
                  percent_text(d.at("busy_ms").get<double>() / r.at("profiled_mean_ms").get<double>())));
  add(cpu ? "time between ops" : "idle gaps",
      fmt::format("{} ms in {} gaps a pass; the longest of all passes {} ms", ms_text(d.at("idle_ms")),
                  count_text(d.at("gaps")), ms_text(d.at("longest_gap_ms"))));
  if (!cpu)
    add("busy + idle against device events",
        fmt::format("{} of {} ms", share_text(d.at("busy_and_idle_to_events")), ms_text(d.at("between_events_ms"))));
  if (d.contains("launch_calls"))
    add("launch overhead on the host",
        fmt::format("{} calls, {} µs each, {} ms in all", count_text(d.at("launch_calls")),
                    significant(d.at("launch_us_each").get<double>(), 3), ms_text(d.at("launch_ms"))));
  const Json& a = r.at("attribution");
  add("attributed to ranges",
      fmt::format(
          "{} of {} activities; by range {} ms, in all {} ms{}",
          grouped(a.at("activities").get<int64_t>() - a.at("unattributed").get<int64_t>()),
          grouped(a.at("activities").get<int64_t>()), ms_text(a.at("by_range_ms")), ms_text(a.at("total_ms")),
          a.at("dropped").get<int64_t>() ? "; the profiler lost " + count_text(a.at("dropped")) + " records" : ""));
  if (r.contains("communication"))
    add("communication overlapped with compute", share_text(r.at("communication").at("overlapped")));
  add("what profiling cost",
      fmt::format("{} → {} ms a pass ({:+.1f} %)", ms_text(r.at("wall_ms")), ms_text(r.at("profiled_wall_ms")),
                  100 * (r.at("slowdown").get<double>() - 1)));
  return t;
}

// The parts of a recorded pass: their kernels' times, less what ran at the same time, and what nothing ran in, make up
// the wall clock.
Table where_it_goes(const Json& r) {
  double wall = r.at("wall_ms"), recorded = r.at("profiled_mean_ms"), busy = r.at("device_time").at("busy_ms"),
         sum = r.at("attribution").at("total_ms"), floor = r.value("floor_ms", 0.0);
  Table t;
  t.title = fmt::format("Where the time goes: {}{}, {} ms", r.value("mode", "") == "compiled" ? "compiled " : "",
                        r.value("pass", "?"), significant(wall, 4));
  if (floor > 0)
    t.title += fmt::format(" = {} × its floor of {} ms", significant(wall / floor, 3), significant(floor, 3));
  t.columns = {{"part", true}, {"ms"}, {"% of the pass"}, {"kernels"}, {"floor ms"}, {"× floor"}};
  auto add = [&](const std::string& part, double ms, const std::string& kernels, double least) {
    t.rows.push_back({part, significant(ms, 4), fmt::format("{:.1f}", 100 * ms / recorded), kernels,
                      least > 0 ? significant(least, 3) : "", least > 0 ? significant(ms / least, 3) : ""});
  };
  for (const Json& p : r.at("parts")) {
    const Json least = p.value("floor_ms", Json());
    add(p.at("part"), p.at("ms"), count_text(p.at("kernels")), least.is_number() ? least.get<double>() : 0);
  }
  constexpr double seen = 5e-4;  // ms; less is rounding
  if (sum - busy > seen) add("ran beside another", busy - sum, "", 0);
  add("idle", recorded - busy, "", 0);
  add("recorded pass", recorded, count_text(whole(r).at("launches")), floor);
  t.drop_empty_columns();
  t.notes.push_back(
      "idle: nothing ran, by the wall clock around a synchronised pass. floor: model FLOPs ÷ the measured peak; "
      "AdamW's bytes ÷ the measured copy bandwidth.");
  return t;
}

Table kernels(const std::string& title, const Json& phase, int64_t top, int64_t passes) {
  Table t;
  t.title = title + fmt::format(" ({})", passes_text(passes));
  t.columns = {{"Time (%)"},           {"Total Time (ns)"},       {"Instances"},
               {"Avg (ns)", false, 4}, {"Med (ns)", false, 6},    {"Min (ns)", false, 8},
               {"Max (ns)", false, 7}, {"StdDev (ns)", false, 9}, {"Name", true, 0, Column::cut}};
  auto ns = [](const Json& v) { return fmt::format("{:.0f}", v.get<double>()); };
  int64_t shown = 0;
  for (const Json& k : phase.at("kernels")) {
    if (shown++ == top) break;
    t.rows.push_back({fmt::format("{:.1f}", 100 * k.at("time_share").get<double>()), ns(k.at("total_ns")),
                      count_text(k.at("instances")), ns(k.at("avg_ns")), ns(k.at("med_ns")), ns(k.at("min_ns")),
                      ns(k.at("max_ns")), ns(k.at("std_ns")), cut(k.at("name"))});
  }
  int64_t rest = int64_t(phase.at("kernels").size()) - top;
  if (rest > 0)
    t.notes.push_back(fmt::format("… and {} more: `profile model --top {}`", rest, phase.at("kernels").size()));
  if (phase.at("kernels").empty()) t.notes.push_back("nothing ran in a range that matches; ranges are listed below");
  return t;
}

Table ranges(const Json& r) {
  Table t;
  t.title = "Time by range (a pass)";
  t.columns = {{"range", true, 0, Column::cut}, {"ms"}, {"%"}, {"launches"}, {"longest kernel", true, 1, Column::cut}};
  for (const Json& x : r.at("ranges"))
    t.rows.push_back({x.at("range"), ms_text(x.at("ms")), fmt::format("{:.1f}", 100 * x.at("share").get<double>()),
                      count_text(x.at("launches")), cut(x.at("top"), 48)});
  t.notes.push_back(
      "layers.*: all layers. attn: qkv, scores (q·kᵀ), softmax (with scale and mask), value (p·v), or one of flash, "
      "tiled and portable for all three; o. ffn: gate_up (w1|w3), w2.");
  t.notes.push_back(
      "again: a cheap result that backward computes again instead of keeping it. A module's own ops stand under its "
      "name.");
  return t;
}

Table ops(const Json& r) {
  Table t;
  bool known = r.at("peak_tflops").get<double>() > 0 && r.at("peak_gbs").get<double>() > 0;
  t.title = known ? fmt::format("Ops against the measured roofline ({} TFLOP/s {}, {} GB/s)",
                                significant(r.at("peak_tflops").get<double>(), 3), r.value("dtype", ""),
                                significant(r.at("peak_gbs").get<double>(), 4))
                  : "Ops (no room to measure the roofline: `sinter doctor` measures it)";
  t.columns = {{"op", true}, {"calls"}, {"ms"}, {"TFLOP/s"}, {"GB/s"}, {"bound by", true}, {"% of roofline"}};
  for (const Json& o : r.at("ops"))
    t.rows.push_back({o.at("op"), count_text(o.at("calls")), ms_text(o.at("ms")),
                      o.at("flops").get<double>() > 0 ? significant(o.at("tflops").get<double>(), 3) : "",
                      significant(o.at("gbs").get<double>(), 3), o.at("bound"),
                      known ? fmt::format("{:.0f}", 100 * o.at("of_roofline").get<double>()) : ""});
  t.notes.push_back(
      "GB/s counts every input read once and every output written once; more than 100 % means that a cache served it.");
  return t;
}

// Several configurations: a row each.
Table overview(const Json& results) {
  Table t = run_table("", {{"wall ms"},
                           {"floor ms", false, 8},
                           {"× floor"},
                           {"recording cost %", false, 14},
                           {"busy ms", false, 4},
                           {"idle ms", false, 2},
                           {"busy + idle ÷ events", false, 15},
                           {"GEMM % forward", false, 3},
                           {"GEMM % pass", false, 1},
                           {"softmax ÷ products, time %", false, 11},
                           {"FLOPs %", false, 12},
                           {"launches", false, 9},
                           {"unattributed", false, 13},
                           {"top kernel, forward", true, 18},
                           {"top kernel, pass", true, 17, Column::cut},
                           {"others > 1 % of forward", true, 19},
                           {"status", true, 0, Column::wrap}});
  for (const Json& r : results) {
    std::vector<std::string> row = run_cells(r, r.value("mode", ""));
    if (r.at("status") == "oom") {
      row.resize(t.columns.size() - 1);
      row.push_back("OOM: " + r.value("reason", ""));
      t.rows.push_back(row);
      continue;
    }
    const Json& d = r.at("device_time");
    const Json* forward = phase_named(r, "forward");
    const Json parts = r.at("attention_parts").value("forward", Json::object());
    auto ratio = [&](const char* f) {
      return parts.contains(f) ? fmt::format("{:.1f}", 100 * parts[f].get<double>()) : "";
    };
    auto top = [&](const Json* p) {
      return p ? fmt::format("{} ×{}", cut(p->at("top").at("name"), 44), count_text(p->at("top").at("instances"))) : "";
    };
    auto known = [&](const char* f) { return r.contains(f) ? significant(r.at(f).get<double>(), 3) : ""; };
    for (const std::string& s :
         {ms_text(r.at("wall_ms")), known("floor_ms"), known("floor_multiple"),
          fmt::format("{:+.1f}", 100 * (r.at("slowdown").get<double>() - 1)), ms_text(d.at("busy_ms")),
          ms_text(d.at("idle_ms")),
          d.value("busy_and_idle_to_events", Json()).is_number()
              ? fmt::format("{:.3f}", d.at("busy_and_idle_to_events").get<double>())
              : "",
          forward ? fmt::format("{:.1f}", 100 * forward->at("gemm_share").get<double>()) : "",
          fmt::format("{:.1f}", 100 * whole(r).at("gemm_share").get<double>()), ratio("time_ratio"),
          ratio("flop_ratio"), count_text(whole(r).at("launches")), count_text(r.at("attribution").at("unattributed")),
          top(forward), top(&whole(r)), forward ? others_text(*forward) : ""})
      row.push_back(s);
    row.push_back("");
    t.rows.push_back(row);
  }
  t.drop_empty_columns();
  t.notes = {
      "busy, idle: of the recorded passes, on the device; wall: of plain ones. busy + idle ÷ events: kernel timestamps "
      "against two device events.",
      "softmax ÷ products: inside attention, forward. unattributed: kernels that belong to no range."};
  return t;
}

Chart chart_of(const Json& results) {
  constexpr size_t most = 12;
  Chart c;
  c.title = "Time by range";
  c.y_label = "ms a pass";
  c.missing = "";
  auto without_step = [](std::string path) { return path.rfind("step/", 0) == 0 ? path.substr(5) : path; };
  std::map<std::string, double> largest;
  for (const Json& r : results)
    if (r.at("status") == "ok")
      for (const Json& x : r.at("ranges")) {
        double& ms = largest[without_step(x.at("range"))];
        ms = std::max(ms, x.at("ms").get<double>());
      }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [path, ms] : largest) order.emplace_back(-ms, path);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < std::min(order.size(), most); ++i) c.categories.push_back(order[i].second);
  for (const Json& r : results) {
    if (r.at("status") == "oom") continue;
    Series s{config_text(r), {}};
    for (const std::string& path : c.categories) {
      std::optional<double> ms;
      for (const Json& x : r.at("ranges"))
        if (without_step(x.at("range")) == path) ms = x.at("ms").get<double>();
      s.values.push_back(ms);
    }
    c.series.push_back(std::move(s));
  }
  return c;
}

}  // namespace

View profile_view(const Json& record) {
  View v;
  v.preamble = machine_lines(record.at("machine"));
  const Json& results = record.at("results");
  int64_t top = record.at("config").value("top", 10);
  bool any = false;
  for (const Json& r : results) {
    if (r.at("status") == "oom") continue;
    check(!r.at("phases").empty(), "the record holds a profile in which nothing ran: the profiler saw no activity");
    if (!any) {
      const Json& p = r.at("profiler");
      std::string source = p.at("source");
      v.preamble.push_back(source == "cupti"    ? "profiler: CUPTI, kernels joined to ranges by correlation"
                           : source == "events" ? "profiler: DEVICE EVENTS around each op"
                                                : "profiler: the clock around each op");
      if (!p.value("why_not_cupti", "").empty())
        v.preamble.push_back("  CUPTI cannot be used: " + p["why_not_cupti"].get<std::string>());
      for (const Json& lost : p.value("lost", Json::array()))
        v.preamble.push_back("  lost: " + lost.get<std::string>());
    }
    any = true;
  }
  if (results.size() != 1 || !any) v.tables.push_back(overview(results));
  for (const Json& r : results) {
    if (!r.contains("selected")) continue;
    const Json& s = r["selected"];
    std::string title = fmt::format("Kernels of ranges that match \"{}\"", s.at("phase").get<std::string>());
    if (results.size() > 1) title += ": " + config_text(r);
    v.tables.push_back(kernels(title, s, top, r.at("passes")));
  }
  if (results.size() == 1 && any) {
    const Json& r = results[0];
    if (r.contains("parts")) v.tables.push_back(where_it_goes(r));  // older records have none
    v.tables.push_back(answers(r));
    for (const Json& p : r.at("phases"))
      v.tables.push_back(kernels("Kernels: " + p.at("phase").get<std::string>(), p, top, r.at("passes")));
    v.tables.push_back(ranges(r));
    v.tables.push_back(ops(r));
  }
  if (any) v.chart = chart_of(results);
  return v;
}

}  // namespace sinter::lab
