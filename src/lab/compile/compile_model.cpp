#include "lab/compile/compile_model.h"

#include <map>
#include <regex>

#include "compile/graph_dump.h"
#include "compile/passes.h"
#include "lab/bench/bench_model.h"
#include "lab/machine.h"
#include "lab/record.h"
#include "plan/gpus.h"
#include "system/files.h"
#include "system/units.h"
#include "train/workload.h"

namespace sinter::lab {
namespace {

// The same in every layer is said once: "layers.*", and how often.
Json counted(const std::vector<std::string>& lines) {
  static const std::regex number("(layers\\.)[0-9]+");
  std::map<std::string, int> counts;
  std::vector<std::string> order;
  for (const std::string& line : lines) {
    std::string all = std::regex_replace(line, number, "$1*");
    if (++counts[all] == 1) order.push_back(all);
  }
  Json j = Json::array();
  for (const std::string& line : order) j.push_back({{"what", line}, {"times", counts[line]}});
  return j;
}

Json result_of(const MeasuredRun& c, const DeviceInfo& on, const Trainer::Replayed& replayed) {
  const compile::Compilation& compilation = replayed.compiled->compilation();
  Json r = {{"size", c.model.name},
            {"device", name_of(c.device)},
            {"dtype", c.precision.name},
            {"attention", name_of(c.model.attention.kind)},
            {"pass", name_of(c.pass)},
            {"batch", c.batch},
            {"accumulate", c.accumulate},
            {"part", replayed.part},
            {"compiled_for", on.name},
            {"ctx", c.model.ctx},
            {"status", "ok"},
            {"config", to_json(c)},
            {"compiled", compilation_json(compilation, compilation.time)}};
  Json& passes = r["compiled"]["passes"];
  for (size_t i = 0; i < passes.size(); ++i) {
    passes[i]["did"] = counted(compilation.reports[i].lines);
    for (const compile::Pass& p : compile::all_passes())
      if (passes[i]["pass"] == p.name) passes[i]["meaning"] = p.what;
  }
  return r;
}

}  // namespace

int compile_model(const CompileModelOptions& options, const OutputOptions& output, const MakeModel& make_model) {
  check_output(output, {{"--dump", options.dump}});
  if (!options.dump.empty()) compile::check_dump_name(options.dump);
  SweepOptions sweep = options.sweep;
  for (const std::string& mode : sweep.mode)
    check(mode_named(mode) == Mode::compiled,
          "--mode {}: compile model compiles; time eager mode with bench model --mode eager", mode);
  sweep.mode = {"compiled"};
  sweep.no_tune = {};  // of a record: it says how to run it
  sweep = with_defaults(sweep);
  set_up_process(sweep);
  check(options.card.empty() || *sweep.device != "cpu", "--card {}: a GPU, but --device is cpu; use --device cuda",
        options.card);
  DeviceInfo on = options.card.empty() ? imagined_device(*sweep.device) : plan::card_named(options.card).info();
  std::vector<MeasuredRun> runs = expand(sweep, on);
  check(options.dump.empty() || runs.size() == 1, "--dump {}: a graph is of one configuration, but these flags make {}",
        options.dump, runs.size());
  Json config = to_json(sweep);
  config["explain"] = options.explain;
  Json record = new_record("compile model", machine_block(DeviceType::cpu), config);
  Progress progress;
  std::string dump;
  for (const MeasuredRun& c : runs) {
    progress.now(c.text());
    MetaTarget target(on);
    Workload work(c, DeviceType::meta, make_model);
    work.run();
    for (const Trainer::Replayed& r : work.trainer().replayed()) record["results"].push_back(result_of(c, on, r));
    if (options.dump.empty()) continue;
    std::string part = work.trainer().replayed().back().part;
    dump = compile::dump_text(*work.compilation(),
                              "sinter compile model: " + c.text() + (part.empty() ? "" : ", " + part), options.dump);
  }
  write_output(output, record);
  if (!options.dump.empty()) write_file(options.dump, dump);
  return 0;
}

}  // namespace sinter::lab
