// sinter plan failures: when so many devices fail, how often to save, and what part of the time is left.
#include "lab/command.h"

#include <cmath>

#include "core/check.h"
#include "lab/driver.h"
#include "lab/fields.h"
#include "plan/failures.h"
#include "system/units.h"

namespace sinter::lab {

struct PlanFailuresOptions {
  std::vector<int64_t> devices = {8, 64, 512, 4096, 16384};
  double mtbf_h = 50000, save_s = 2, write_s = 30, restart_s = 300;
  std::optional<double> every_s, step_ms;
};

struct FailuresResult {
  int64_t devices = 1;
  bool best = true;  // interval; otherwise the one that was asked for
  plan::Goodput at;
  std::optional<double> steps;  // between checkpoints

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("status", std::string("ok"));
    f("devices", self.devices);
    f("best", self.best);
    f("failure_s", self.at.failure);
    f("interval_s", self.at.interval);
    f("steps", self.steps);
    f("goodput", self.at.training);
    f("saving", self.at.saving);
    f("again", self.at.again);
    f("down", self.at.down);
  }
};

namespace {

constexpr const char* examples =
    R"(Nothing is run. The default of --mtbf is what 16,384 H100s had that trained Llama 3 405B: 419
unexpected interruptions in 54 days. Two clusters for research had five to six times as many:
8,000 to 9,000 hours.

Examples:
  sinter plan failures
  sinter plan failures --devices 1024 --mtbf 8100 --save-s 20 --write-s 0
  sinter plan failures --devices 16384 --step-ms 12000 --every-s 3600     beside one every hour)";

std::string duration(double s) {
  if (s < 120) return significant(s, 3) + " s";
  if (s < 7200) return significant(s / 60, 3) + " min";
  if (s < 172800) return significant(s / 3600, 3) + " h";
  return significant(s / 86400, 3) + " days";
}

int plan_failures(const PlanFailuresOptions& o, const OutputOptions& output) {
  for (int64_t n : o.devices) check(n >= 1 && n <= 10000000, "--devices must be between 1 and 10000000, not {}", n);
  check(o.mtbf_h > 0 && std::isfinite(o.mtbf_h), "--mtbf must be more than 0 hours, not {}", o.mtbf_h);
  for (auto [flag, value] : {std::pair{"--save-s", o.save_s}, {"--write-s", o.write_s}, {"--restart-s", o.restart_s}})
    check(value >= 0 && std::isfinite(value), "{} must be 0 seconds or more, not {}", flag, value);
  check(o.save_s + o.write_s > 0, "--save-s 0 and --write-s 0: a checkpoint that costs nothing is best made each step");
  check(!o.every_s || (*o.every_s > 0 && std::isfinite(*o.every_s)), "--every-s must be more than 0, not {}",
        o.every_s.value_or(0));
  check(!o.step_ms || (*o.step_ms > 0 && std::isfinite(*o.step_ms)), "--step-ms must be more than 0, not {}",
        o.step_ms.value_or(0));
  check(!o.every_s || *o.every_s + o.save_s >= o.write_s,
        "--every-s {}: a checkpoint would begin before the one before it is written, {} s after it (--write-s)",
        o.every_s.value_or(0), o.write_s);
  plan::FailureCosts costs{3600 * o.mtbf_h, o.save_s, o.write_s, o.restart_s};
  Experiment e{"plan failures",
               {{"mtbf_h", o.mtbf_h}, {"save_s", o.save_s}, {"write_s", o.write_s}, {"restart_s", o.restart_s}}};
  Group& group = e.groups.emplace_back();
  group.in_turns = false;
  for (int64_t n : o.devices)
    group.cases.push_back(simple_case(fmt::format("{} devices", n), [&o, costs, n](Progress&) {
      Json rows = Json::array();
      auto add = [&](bool best, double interval) {
        FailuresResult r{n, best, plan::goodput_of(costs, double(n), interval), {}};
        if (o.step_ms) r.steps = std::max(1.0, std::round(interval / (*o.step_ms / 1e3)));
        rows.push_back(r);
      };
      add(true, plan::best_interval(costs, double(n)));
      if (o.every_s) add(false, *o.every_s);
      return rows;
    }));
  return run(e, output);
}

View plan_failures_view(const Json& record) {
  const Json& c = record.at("config");
  View view;
  view.preamble = {
      fmt::format("A device fails every {} hours. A checkpoint holds training up for {} and is safe {} later; "
                  "a restart takes {}.",
                  significant(c.at("mtbf_h"), 3), duration(c.at("save_s")), duration(c.at("write_s")),
                  duration(c.at("restart_s")))};
  Table t;
  t.title = "Failures, and what they cost";
  t.columns = {{"devices"},   {"one fails every"}, {"save every"}, {"steps"}, {"", true},
               {"goodput %"}, {"saving %"},        {"again %"},    {"down %"}};
  t.keys = 2;
  auto percent = [](const Json& r, const char* field) {
    return fmt::format("{:.2f}", 100 * r.at(field).get<double>());
  };
  for (const Json& r : record.at("results"))
    t.rows.push_back({grouped(r.at("devices").get<int64_t>()), duration(r.at("failure_s")),
                      duration(r.at("interval_s")),
                      r.contains("steps") ? grouped(std::llround(r["steps"].get<double>())) : "",
                      r.at("best").get<bool>() ? "best" : "", percent(r, "goodput"), percent(r, "saving"),
                      percent(r, "again"), percent(r, "down")});
  t.drop_empty_columns();
  t.notes = {
      "goodput: the part of the time in which training gets on. saving: it stands still for checkpoints. again: it "
      "does "
      "what was lost, since the last checkpoint that was safe. down: it restarts.",
      "Failures come at random, at the same rate at any time, also while restarting; every one stops all devices."};
  view.tables = {t};
  return view;
}

Command::Run declare(Flags& flags, const Program&) {
  struct Given {
    PlanFailuresOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  PlanFailuresOptions& p = g->plan;
  const char *what = "Failures", *saves = "Checkpoints";
  flags.add("--devices", p.devices, "N,..", "that train together (default 8,64,512,4096,16384)", what);
  flags.add("--mtbf", p.mtbf_h, "HOURS",
            "from one failure of a device, with its share of host, network and software, to the next (default 50000)",
            what);
  flags.add("--restart-s", p.restart_s, "S", "from a failure until training goes on (default 300)", what);
  flags.add("--save-s", p.save_s, "S", "that training stands still for a checkpoint (default 2)", saves);
  flags.add("--write-s", p.write_s, "S", "until it is safe, while training goes on (default 30)", saves);
  flags.add("--every-s", p.every_s, "S", "also with this much work between checkpoints", saves);
  flags.add("--step-ms", p.step_ms, "X", "a step: intervals are said in steps too", saves);
  add_output_flags(flags, g->output, Plot::no);
  return [g] { return plan_failures(g->plan, g->output); };
}

}  // namespace

std::vector<Command> plan_failures_commands() {
  return {{"plan failures", "how often devices fail, how often to save, and what part of the time is left", examples,
           declare, plan_failures_view}};
}

}  // namespace sinter::lab
