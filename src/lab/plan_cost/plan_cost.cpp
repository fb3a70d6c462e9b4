#include "lab/plan_cost/plan_cost.h"

#include <cmath>
#include <fmt/ranges.h>

#include "core/check.h"
#include "lab/driver.h"
#include "plan/closed_forms.h"
#include "plan/gpus.h"

namespace sinter::lab {

// A line of the sheet, or of another level's.
struct CostRow {
  plan::Sheet::Line line;
  std::string level;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("section", self.line.section);
    f("level", self.level);
    f("what", self.line.what);
    f("symbol", self.line.symbol);
    f("formula", self.line.formula);
    f("numbers", self.line.numbers);
    f("value", std::isfinite(self.line.value) ? Json(self.line.value) : Json());
    f("unit", self.line.unit);
  }
};

namespace {

struct Asked {
  plan::CostQuestion question;
  Json config;  // of the record
};

Asked asked_of_model(SweepOptions sweep) {
  DeviceInfo card = plan::card_named("H100-80").info();
  sweep.device = "cuda";
  if (!sweep.mode.empty()) sweep.mode = {}, sweep.passes = {};  // of a record: equations know no mode
  sweep.memory_budget = {};
  std::vector<MeasuredRun> runs = expand(with_defaults(sweep), card);
  check(runs.size() == 1, "plan cost is about one configuration, but these flags make {}; give one value to each",
        runs.size());
  const MeasuredRun& run = runs[0];
  plan::CostQuestion q;
  q.model = run.model;
  q.batch = run.batch;
  q.copies = run.precision.compute.has_value();
  q.product_bytes = q.copies ? 2 : 4;
  q.mesh.flops = plan::datasheet_product("H100", run.precision.name).value();
  q.mesh.bandwidth = 4.5e11;
  q.mesh.memory = 80e9;
  q.mesh.call_s = 20e-6;
  return {q, config_of(run)};
}

Asked asked_of_preset(const PlanCostOptions& o) {
  check(o.preset == "xxl", "--preset {}: unknown; choose xxl", o.preset);
  const Json given = to_json(o.sweep);
  check(given.empty(), "--preset {}: says what the model is; leave out {}", o.preset,
        given.empty() ? "" : flag_named(given.items().begin().key()));
  plan::CostQuestion q = plan::xxl_question();
  return {q, {{"preset", o.preset}, {"batch", q.batch}, {"ctx", q.model.ctx}, {"dtype", "bf16"}}};
}

Asked asked_of(const PlanCostOptions& o) {
  Asked asked = o.preset.empty() ? asked_of_model(o.sweep) : asked_of_preset(o);
  plan::CostQuestion& q = asked.question;
  check(o.links.empty() || o.links.size() == 2, "--links {}: give two numbers, for the data and the tensor axis",
        fmt::join(o.links, ","));
  if (o.data) q.mesh.data = *o.data;
  if (o.tensor) q.mesh.tensor = *o.tensor;
  if (!o.links.empty()) q.mesh.data_links = o.links[0], q.mesh.tensor_links = o.links[1];
  if (o.shard) q.shard = shard_level_named(*o.shard);
  else if (q.mesh.data == 1) q.shard = ShardLevel::none;
  q.mesh.flops = o.flops.value_or(q.mesh.flops);
  q.mesh.bandwidth = o.bandwidth.value_or(q.mesh.bandwidth);
  if (o.memory) q.mesh.memory = *o.memory * 1e9;
  if (o.call_us) q.mesh.call_s = *o.call_us * 1e-6;
  plan::check_question(q);
  asked.config.update(Json{{"data", q.mesh.data},
                           {"tensor", q.mesh.tensor},
                           {"shard", name_of(q.shard)},
                           {"links", {q.mesh.data_links, q.mesh.tensor_links}},
                           {"flops", q.mesh.flops},
                           {"bandwidth", q.mesh.bandwidth},
                           {"memory_bytes", q.mesh.memory},
                           {"call_s", q.mesh.call_s}});
  return asked;
}

// The sheet, and what the other levels need and send.
Json rows_of(plan::CostQuestion q, bool xxl) {
  Json rows = Json::array();
  plan::Sheet sheet = plan::cost_sheet(q);
  if (xxl) plan::add_xxl_answers(sheet, q);
  for (const plan::Sheet::Line& line : sheet.lines) rows.push_back(CostRow{line, name_of(q.shard)});
  if (q.mesh.data == 1) return rows;
  for (ShardLevel level : {ShardLevel::none, ShardLevel::optimizer, ShardLevel::gradients, ShardLevel::parameters}) {
    q.shard = level;
    plan::Sheet other = plan::cost_sheet(q);
    for (plan::Sheet::Line line : other.lines)
      if (line.symbol.starts_with("D") || line.symbol == "A" || line.symbol == "Q_X") {
        line.section = "levels";
        rows.push_back(CostRow{line, name_of(level)});
      }
  }
  return rows;
}

}  // namespace

int plan_cost(const PlanCostOptions& options, const OutputOptions& output) {
  Asked asked = asked_of(options);
  Experiment e{"plan cost", asked.config};
  e.groups.emplace_back().cases.push_back(
      simple_case("equations", [&](Progress&) { return rows_of(asked.question, !options.preset.empty()); }));
  return run(e, output);
}

}  // namespace sinter::lab
