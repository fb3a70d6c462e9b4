#include "lab/plan_validate/plan_validate.h"

#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <random>
#include <unistd.h>

#include "core/check.h"
#include "lab/driver.h"
#include "lab/measured_steps.h"
#include "lab/network_record.h"
#include "plan/published.h"
#include "plan/step_time.h"
#include "system/process.h"
#include "system/signals.h"

namespace sinter::lab {

// One run: what a step took, and what was predicted.
struct ValidatedRun {
  std::string kind, id, source, text, machine;
  int64_t devices = 1;
  double measured_ms = 0, spread = 0, raw_ms = 0, factor = 1, predicted_ms = 0, naive_ms = 0;
  std::string assumed, left_out;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("kind", self.kind);
    f("id", self.id);
    f("source", self.source);
    f("text", self.text);
    f("machine", self.machine);
    f("devices", self.devices);
    f("measured_ms", self.measured_ms);
    f("spread", self.spread);
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

// Of one device nothing is sent, so that any network will do.
plan::Network network_for(const std::string& name, const std::string& backend = "") {
  return network_or_record(name.empty() ? "h100" : name, backend);
}

ValidatedRun validated(const MeasuredStepOf& s, const std::string& source, const plan::Machine& machine,
                       const std::string& network_name, const MakeModel& make_model) {
  check(s.backend.empty() || !network_name.empty(),
        "{}: has steps of ranks that communicate; say how fast with --network: a record of bench allreduce", source);
  plan::Network network = network_for(network_name, s.backend);
  plan::StepWork work = plan::step_work(s.run, machine.target, network.devices_per_node, make_model);
  plan::StepTime t = plan::time_of(work, machine, network, {s.share_device, 1});
  ValidatedRun v;
  v.kind = "step", v.id = s.run.model.name, v.source = source, v.machine = machine.name;
  v.text = s.text(), v.devices = s.ranks;
  v.measured_ms = s.ms, v.spread = s.spread, v.raw_ms = v.predicted_ms = 1e3 * t.seconds;
  v.naive_ms = 1e3 * t.flops / machine.product(s.run.precision.name).peak;
  return v;
}

// Sizes within what a machine of this kind does in about a second; any combination of them is as likely.
std::vector<std::string> random_flags(std::mt19937_64& random, bool gpu) {
  auto one_of = [&](std::vector<int64_t> all) { return all[random() % all.size()]; };
  int64_t head = one_of(gpu ? std::vector<int64_t>{64, 80, 128} : std::vector<int64_t>{32, 64});
  int64_t heads = gpu ? 8 + int64_t(random() % 17) : 2 + int64_t(random() % 7);
  int64_t d = head * heads, ff = d * one_of({2, 3, 4});
  std::vector<std::string> flags;
  auto add = [&](const char* name, const std::string& value) { flags.emplace_back(name), flags.push_back(value); };
  add("--d-model", std::to_string(d)), add("--heads", std::to_string(heads)), add("--d-ff", std::to_string(ff));
  add("--layers", std::to_string(gpu ? 4 + random() % 29 : 1 + random() % 6));
  add("--vocab", std::to_string(one_of({2000, 10000, 32000})));
  add("--ctx",
      std::to_string(one_of(gpu ? std::vector<int64_t>{128, 256, 512, 1024} : std::vector<int64_t>{32, 64, 128, 256})));
  add("--batch", std::to_string(one_of({1, 2, 4, 8})));
  add("--mode", one_of({0, 1}) ? "compiled" : "eager");
  add("--dtype", gpu && one_of({0, 1}) ? "bf16" : "fp32");
  return flags;
}

// Each in a process of its own, as somebody would measure it.
Json random_rows(const PlanValidateOptions& o, const plan::Machine& machine, const MakeModel& make_model,
                 Progress& progress) {
  std::mt19937_64 random{uint64_t(o.seed)};
  namespace fs = std::filesystem;
  fs::path file = fs::temp_directory_path() / fmt::format("sinter_validate_{}.json", getpid());
  Json rows = Json::array();
  for (int64_t i = 0; i < o.random && !interrupted(); ++i) {
    std::vector<std::string> command = {own_executable(), "bench", "model",   "--device", name_of(machine.target.type),
                                        "--warmup",       "3",     "--steps", "12",       "--json",
                                        file.string()};
    for (const std::string& flag : random_flags(random, machine.target.type == DeviceType::cuda))
      command.push_back(flag);
    progress.now(fmt::format("measuring {} of {}", i + 1, o.random));
    ProcessOptions options;
    options.quiet = true, options.until_interrupted = true;
    ProcessResult done = run_process(command, options);
    if (done.exit_code == int(ErrorKind::memory)) continue;  // too large for this device: another is drawn next
    check(done.exit_code == 0, "{} ended with exit code {}", fmt::join(command, " "), done.exit_code);
    for (const MeasuredStepOf& s : measured_steps(file.string(), machine.target))
      rows.push_back(validated(s, fmt::format("random {}", i + 1), machine, o.network, make_model));
    std::error_code gone;
    fs::remove(file, gone);
  }
  return rows;
}

// The naive predictor has the best of all constant parts of the peak, which it could only know afterwards.
void scale_naive(Json& rows) {
  double sum = 0;
  for (const Json& r : rows) sum += std::log(r["measured_ms"].get<double>() / r["naive_ms"].get<double>());
  for (Json& r : rows) r["naive_ms"] = r["naive_ms"].get<double>() * std::exp(sum / double(rows.size()));
}

}  // namespace

int plan_validate(const PlanValidateOptions& o, const OutputOptions& output, const MakeModel& make_model) {
  int kinds = !o.published.empty() + !o.records.empty() + (o.random > 0);
  check(kinds == 1, "plan validate: compare with one of --published, --record and --random N");
  check(o.published.empty() || o.machine.empty(), "--machine {}: published runs name their machines", o.machine);
  check(!o.published.empty() || !o.machine.empty(),
        "plan validate: name the --machine that predicts; sinter plan calibrate makes its file");
  check(o.random >= 0 && o.random <= 10000 && o.seed >= 0,
        "--random and --seed must be between 0 and 10000, and not {} and {}", o.random, o.seed);
  plan::Machine machine;
  network_for(o.network);  // refused before anything is measured
  if (!o.machine.empty()) machine = plan::machine_named(o.machine);
  if (o.random > 0) device_named(name_of(machine.target.type));
  Experiment e{"plan validate",
               {{"published", o.published},
                {"records", o.records},
                {"random", o.random},
                {"seed", o.seed},
                {"machine", o.machine},
                {"machine_hash", machine.hash}}};
  Group& group = e.groups.emplace_back();
  group.in_turns = false;
  if (!o.published.empty())
    group.cases.push_back(simple_case(o.published, [&](Progress&) { return published_rows(o.published); }));
  for (const std::string& file : o.records)
    group.cases.push_back(simple_case(file, [&](Progress&) {
      Json rows = Json::array();
      for (const MeasuredStepOf& s : measured_steps(file, machine.target))
        rows.push_back(validated(s, file, machine, o.network, make_model));
      return rows;
    }));
  if (o.random > 0)
    group.cases.push_back(simple_case(fmt::format("{} shapes of seed {}", o.random, o.seed),
                                      [&](Progress& p) { return random_rows(o, machine, make_model, p); }));
  e.finish = [&](Json& record) {
    if (o.published.empty()) scale_naive(record["results"]);
  };
  return run(e, output);
}

}  // namespace sinter::lab
