#include "lab/plan_validate/plan_validate.h"

#include <cmath>

#include "core/check.h"
#include "lab/driver.h"
#include "lab/record.h"
#include "lab/sweep.h"
#include "plan/published.h"
#include "plan/step_time.h"

namespace sinter::lab {

// One run: what a step took, and what was predicted.
struct ValidatedRun {
  std::string kind, id, source, text, machine;
  int64_t devices = 1;
  double measured_ms = 0, raw_ms = 0, factor = 1, predicted_ms = 0, naive_ms = 0;
  std::string assumed, left_out;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("kind", self.kind);
    f("id", self.id);
    f("source", self.source);
    f("text", self.text);
    f("machine", self.machine);
    f("devices", self.devices);
    f("measured_ms", self.measured_ms);
    f("raw_ms", self.raw_ms);
    f("factor", self.factor);
    f("predicted_ms", self.predicted_ms);
    f("naive_ms", self.naive_ms);
    f("assumed", self.assumed);
    f("left_out", self.left_out);
  }
};

namespace {

std::string layout_text(const plan::Layout& l) {
  std::string text;
  auto add = [&](const char* name, int64_t n) {
    if (n > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", n, name);
  };
  add("data", l.data), add("tensor", l.tensor), add("pipeline", l.pipeline), add("context", l.context);
  constexpr const char* levels[] = {"", ", optimizer", ", gradients", ", parameters"};
  return text + levels[l.shard];
}

Json published_rows(const std::string& file) {
  Json rows = Json::array();
  for (const plan::Compared& c : plan::compare_published(plan::read_published(file))) {
    ValidatedRun v;
    v.kind = "published";
    v.id = c.run.id, v.source = c.run.source, v.machine = c.run.machine;
    v.devices = c.run.layout.devices();
    v.text = fmt::format("d {} L {} ctx {}, {}", c.run.shape.d_model, c.run.shape.layers, c.run.shape.ctx,
                         layout_text(c.run.layout));
    v.measured_ms = 1e3 * c.run.seconds, v.raw_ms = 1e3 * c.raw, v.factor = c.factor;
    v.predicted_ms = 1e3 * c.predicted, v.naive_ms = 1e3 * c.naive;
    v.assumed = c.run.assumed, v.left_out = c.run.left_out;
    rows.push_back(v);
  }
  return rows;
}

// Of a record, every step that was timed on one device; what came to nothing is left away.
Json record_rows(const std::string& file, const PlanValidateOptions& o, const MakeModel& make_model,
                 Progress& progress) {
  const Json record = read_record(file);
  check(record.value("command", "") == "bench model", "--record {}: of {}; give one of bench model", file,
        record.value("command", "?"));
  plan::Machine machine = plan::machine_named(o.machine);
  plan::Network network = plan::network_named(o.network);
  Json rows = Json::array();
  for (const Json& r : record.at("results")) {
    if (r.value("engine", "") != "sinter" || r.value("status", "") != "ok" || !r.contains("config")) continue;
    check(r.value("device", "") == name_of(machine.target.type), "--machine {}: a {}, and {} is of {}", machine.name,
          name_of(machine.target.type), file, r.value("device", "?"));
    const DeviceInfo& on = machine.target;
    SweepOptions sweep = sweep_from_json(r["config"], file);
    sweep.threads = {}, sweep.no_tune = {};
    // What ran, where the configuration left it open.
    if (r.contains("attention")) sweep.attention = {r["attention"].get<std::string>()};
    const MeasuredRun run = expand(with_defaults(sweep), on).at(0);
    progress.now(run.text());
    plan::StepTime t = plan::predict_time(run, on, machine, network, make_model);
    ValidatedRun v;
    v.kind = "record", v.id = run.model.name, v.source = file, v.machine = machine.name;
    v.text = run.text();
    v.measured_ms = r.at("median_ms"), v.raw_ms = v.predicted_ms = 1e3 * t.seconds;
    v.naive_ms = 1e3 * t.flops / machine.product(run.precision.name).peak;
    rows.push_back(v);
  }
  // One part of the peak for all of them, the best there is.
  double sum = 0;
  for (const Json& r : rows) sum += std::log(r["measured_ms"].get<double>() / r["naive_ms"].get<double>());
  for (Json& r : rows) r["naive_ms"] = r["naive_ms"].get<double>() * std::exp(sum / double(rows.size()));
  return rows;
}

}  // namespace

int plan_validate(const PlanValidateOptions& o, const OutputOptions& output, const MakeModel& make_model) {
  check(o.published.empty() || o.records.empty(), "--published and --record: one at a time");
  check(!o.published.empty() || !o.records.empty(),
        "plan validate: nothing to compare with; give --published or --record");
  Experiment e{"plan validate", {{"published", o.published}, {"records", o.records}, {"machine", o.machine}}};
  Group& group = e.groups.emplace_back();
  group.in_turns = false;
  if (!o.published.empty())
    group.cases.push_back(simple_case(o.published, [&](Progress&) { return published_rows(o.published); }));
  for (const std::string& file : o.records)
    group.cases.push_back(simple_case(file, [&](Progress& p) { return record_rows(file, o, make_model, p); }));
  return run(e, output);
}

}  // namespace sinter::lab
