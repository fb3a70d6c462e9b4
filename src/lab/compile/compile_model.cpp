#include "lab/compile/compile_model.h"

#include <map>
#include <regex>

#include "compile/graph_dump.h"
#include "compile/passes.h"
#include "core/check.h"
#include "lab/compilation.h"
#include "lab/driver.h"
#include "plan/gpus.h"
#include "train/workload.h"

namespace sinter::lab {

// One for each part of a pass that is compiled by itself.
struct CompileResult {
  MeasuredRun run;
  std::string compiled_for, part;
  CompilationResult compiled;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    MeasuredRun::fields(self.run, f);
    f("part", self.part);
    f("compiled_for", self.compiled_for);
    f("status", std::string("ok"));
    f("config", config_of(self.run));
    const Json ranks = ranks_json(self.run);
    for (const auto& [name, value] : ranks.items()) f(name.c_str(), value);
    f("compiled", self.compiled);
  }
};

namespace {

// The same in every layer is said once: "layers.*", and how often.
std::vector<PassResult::Done> counted(const std::vector<std::string>& lines) {
  static const std::regex number("(layers\\.)[0-9]+");
  std::vector<PassResult::Done> all;
  std::map<std::string, size_t> index;
  for (const std::string& line : lines) {
    std::string general = std::regex_replace(line, number, "$1*");
    auto [it, added] = index.emplace(general, all.size());
    if (added) all.push_back({general, 0});
    ++all[it->second].times;
  }
  return all;
}

CompileResult result_of(const MeasuredRun& c, const DeviceInfo& on, const Trainer::Replayed& replayed) {
  const compile::Compilation& compilation = replayed.compiled->compilation();
  CompileResult r{c, on.name, replayed.part, compilation_of(compilation, compilation.time)};
  for (size_t i = 0; i < r.compiled.passes.size(); ++i) {
    PassResult& pass = r.compiled.passes[i];
    pass.did = counted(compilation.reports[i].lines);
    for (const compile::Pass& p : compile::all_passes())
      if (pass.pass == p.name) pass.meaning = p.what;
  }
  return r;
}

}  // namespace

int compile_model(const CompileModelOptions& options, const OutputOptions& output, const MakeModel& make_model) {
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
  std::vector<MeasuredRun> runs = with_ranks(expand(sweep, on), options.ranks);
  check(options.dump.empty() || runs.size() == 1, "--dump {}: a graph is of one configuration, but these flags make {}",
        options.dump, runs.size());
  Experiment e{"compile model", to_json(sweep), DeviceType::cpu};
  e.config["explain"] = options.explain;
  std::string dump;
  auto compile_one = [&](const MeasuredRun& c) {
    MetaTarget target(on);
    Workload work(c, DeviceType::meta, make_model);
    work.run();
    Json rows = Json::array();
    for (const Trainer::Replayed& r : work.trainer().replayed()) rows.push_back(result_of(c, on, r));
    if (!options.dump.empty()) {
      std::string part = work.trainer().replayed().back().part;
      dump = compile::dump_text(*work.compilation(),
                                "sinter compile model: " + c.text() + ranks_text(c) + (part.empty() ? "" : ", " + part),
                                options.dump);
    }
    return rows;
  };
  for (const MeasuredRun& c : runs)
    e.groups.emplace_back().cases.push_back(
        simple_case(c.text() + ranks_text(c), [&](Progress&) { return compile_one(c); }));
  e.files = {{"--dump", options.dump, [&] { return dump; }}};
  return run(e, output);
}

}  // namespace sinter::lab
