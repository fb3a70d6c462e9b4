// sinter plan calibrate: a machine file from steps that were measured.
#include "lab/command.h"

#include "core/check.h"
#include "lab/driver.h"
#include "lab/measured_steps.h"
#include "plan/calibrate.h"
#include "plan/peaks.h"
#include "system/files.h"
#include "system/host.h"
#include "system/units.h"

namespace sinter::lab {

struct CalibrateOptions {
  std::vector<std::string> records;
  std::string machine, name, out;
};

struct CalibrateResult {
  std::string what;
  double before = 0, after = 0;
  std::string unit;
  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("what", self.what);
    f("before", self.before);
    f("after", self.after);
    f("unit", self.unit);
  }
};

namespace {

constexpr const char* examples =
    R"(Measure some steps first; plan calibrate then finds the rates that explain them best.

Examples:
  sinter bench model --size tiny,mini --ctx 64,128 --mode eager,compiled --json steps.json
  sinter plan calibrate --record steps.json --out mine.json
  sinter plan simulate --size small --machine mine.json
  sinter plan validate --record others.json --machine mine.json     how good that is)";

// This machine, before anything is known of it but its peaks.
plan::Machine unknown_machine(const std::string& name) {
  plan::Machine m;
  DeviceType device = device_named(default_device());
  m.name = name;
  m.target = target_of(device);
  m.memory_bytes = double(device == DeviceType::cpu ? host_memory_bytes() : m.target.memory_bytes);
  plan::Peaks peaks(device);
  std::vector<std::string> dtypes = {"fp32", "bf16", "fp16"};
  if (device == DeviceType::cuda) dtypes.push_back("tf32");
  for (const std::string& d : dtypes)
    if (double peak = peaks.product(d); peak > 0) m.products[d] = {peak, 0.9, 50};
  check(!m.products.empty(), "this machine's peaks could not be measured; see sinter doctor");
  m.bandwidth = std::max(peaks.copy(), 1e8);
  m.call_s = device == DeviceType::cpu ? 5e-6 : 2e-6;
  m.host_call_s = device == DeviceType::cpu ? 0 : 6e-6;
  m.overlap = device == DeviceType::cpu ? 0.5 : 0.25;  // of the CPU, collectives use the cores too
  return m;
}

Json rows_of(const plan::Machine& before, const plan::Machine& after, double error_before, double error_after) {
  Json rows = Json::array();
  auto add = [&](const std::string& what, double a, double b, const char* unit) {
    rows.push_back(CalibrateResult{what, a, b, unit});
  };
  for (const auto& [dtype, p] : after.products) {
    const plan::ProductRate& was = before.products.at(dtype);
    add("products " + dtype + ", large", was.peak * was.reach / 1e12, p.peak * p.reach / 1e12, "TFLOP/s");
    add("products " + dtype + ", edge", was.edge, p.edge, "elements");
  }
  add("attention forward", 100 * before.attention.forward, 100 * after.attention.forward, "% of products' peak");
  add("attention backward", 100 * before.attention.backward, 100 * after.attention.backward, "% of products' peak");
  add("what else moves bytes", before.bandwidth / 1e9, after.bandwidth / 1e9, "GB/s");
  add("a call", 1e6 * before.call_s, 1e6 * after.call_s, "µs");
  add("a call, on the host", 1e6 * before.host_call_s, 1e6 * after.host_call_s, "µs");
  add("error of these steps", 100 * error_before, 100 * error_after, "% on average");
  return rows;
}

View calibrate_view(const Json& record) {
  Table t;
  t.title = "Rates";
  t.columns = {{"what", true}, {"before"}, {"after"}, {"unit", true}};
  for (const Json& r : record.at("results"))
    t.rows.push_back({r.at("what"), significant(r.at("before"), 3), significant(r.at("after"), 3), r.at("unit")});
  const Json& config = record.at("config");
  View view;
  view.preamble = {fmt::format("{} from {} steps.", config.value("machine", "?"), config.value("steps", 0L))};
  if (config.contains("hash")) view.preamble.push_back("Hash of the file: " + config["hash"].get<std::string>());
  view.tables = {t};
  return view;
}

int calibrate(const CalibrateOptions& o, OutputOptions output, const MakeModel& make_model) {
  check(!o.records.empty(), "plan calibrate: give measured steps with --record; sinter bench model --json writes them");
  check(!o.out.empty(), "plan calibrate: say with --out where the machine's file goes");
  plan::Machine start = o.machine.empty() ? unknown_machine(o.name) : plan::machine_named(o.machine);
  start.name = o.name;
  plan::Network network = plan::network_named("h100");  // one device: nothing is sent
  std::vector<plan::MeasuredStep> steps;
  for (const std::string& file : o.records) {
    output.reads.emplace_back("--record", file);
    for (const MeasuredStepOf& s : measured_steps(file, start.target)) {
      if (s.run.group) continue;  // the time of collectives is the network's
      start.product(s.run.precision.name);
      steps.push_back({plan::step_work(s.run, start.target, network.devices_per_node, make_model), s.ms / 1e3});
    }
  }
  check(!steps.empty(), "plan calibrate: in these steps ranks wait for one another; give --strategy none of bench ddp");
  Experiment e{"plan calibrate", {{"machine", o.name}, {"steps", steps.size()}, {"records", o.records}}};
  auto text = std::make_shared<std::string>();
  e.groups.emplace_back().cases.push_back(simple_case("rates", [&, text](Progress&) {
    plan::Machine found = plan::calibrated(start, steps, network);
    found.date = now_text();
    *text = plan::machine_json(found);
    return rows_of(start, found, plan::mean_error(start, steps, network), plan::mean_error(found, steps, network));
  }));
  e.files = {{"--out", o.out, [text] { return *text; }}};
  return run(e, output);
}

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    CalibrateOptions calibrate;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  flags.add("--record", g->calibrate.records, "FILE,..",
            "steps to explain: records of bench model, or of bench ddp --strategy none", "Machine");
  flags.add("--machine", g->calibrate.machine, "NAME|FILE", "where to begin (default: this machine's peaks)",
            "Machine");
  g->calibrate.name = "this machine";
  flags.add("--name", g->calibrate.name, "TEXT", "what the machine is called", "Machine");
  flags.add("--out", g->calibrate.out, "FILE", "the machine's file", "Output");
  add_output_flags(flags, g->output, Plot::no);
  return [g, program] { return calibrate(g->calibrate, g->output, program.make_model); };
}

}  // namespace

std::vector<Command> plan_calibrate_commands() {
  return {
      {"plan calibrate", "a machine's rates, from steps that were measured on it", examples, declare, calibrate_view}};
}

}  // namespace sinter::lab
