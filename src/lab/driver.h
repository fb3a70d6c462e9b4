// The one loop of every experiment. An experiment says what a case is; the driver checks the output, asks what fits,
// runs what is compared in turns, says how far it is, measures again what cannot be believed, keeps what is finished
// whatever happens, and writes the record, the tables and the plot.
#pragma once
#include <functional>
#include <memory>

#include "core/device.h"
#include "lab/output.h"
#include "plan/prediction.h"

namespace sinter::lab {

// What is compared is measured in turns, so that drift of the machine meets all of it.
struct Turn {
  int index = 0, count = 1;
  int64_t share(int64_t passes) const { return passes / count + (index < passes % count); }
};

class Case {
 public:
  virtual ~Case() = default;
  // For people: "small, batch 4, ctx 256, bf16, flash attention, step".
  virtual std::string text() const = 0;
  // Asked before its group runs; what does not fit is not run, and has this row in its place.
  virtual plan::Fit fit() { return {true, 0, "", ""}; }
  virtual Json does_not_fit(const std::string& reason, int64_t free_bytes);
  // Its share of the passes. False: interrupted.
  virtual bool run(const Turn& turn, Progress& progress) = 0;
  // The results of the turns that were finished; there may be none.
  virtual Json rows() = 0;
  // For people, of a result.
  virtual std::string outcome(const Json& row) const;
  // Why its result cannot be believed, or nothing. If so, it forgets it and is run again; rows() still has it if
  // nothing takes its place.
  virtual std::string doubt() { return ""; }
  virtual void forget() {}
  // For the record's notes.
  virtual std::vector<std::string> notes() const { return {}; }
};

// A case that has nothing to repeat or to predict: it makes its rows.
std::unique_ptr<Case> simple_case(const std::string& text, const std::function<Json(Progress&)>& make_rows);

struct Group {
  std::vector<std::unique_ptr<Case>> cases;
  bool in_turns = true;  // otherwise one after the other, each as a whole
  int turns = 2;
};

struct Experiment {
  std::string command;  // as records name it
  Json config;          // of all of it
  DeviceType device = DeviceType::cpu;
  std::vector<Group> groups = {};
  std::vector<Artefact> files = {};
  std::function<void(Progress&)> before = {};              // once, when the output has been checked
  std::function<void(Json& record)> finish = {};           // fields that follow from all results
  std::function<int(const Json& results)> exit_code = {};  // in place of exit_code_of
  bool silent = false;                                     // started by another sinter: no progress
  bool writes = true;                                      // false: another rank does, and this one is silent
  std::function<bool()> stopped = {};  // in place of interrupted(), where ranks must agree: all ask at the same times
};

// Runs the experiment and writes its output. Returns the exit code.
int run(Experiment& experiment, OutputOptions output);

// 3 where nothing fits, 4 where a loss is not finite, otherwise 0.
int exit_code_of(const Json& results);

// What stands next to one another and is comparable makes a group.
template <class Config, class Comparable, class MakeCase>
std::vector<Group> groups_of(const std::vector<Config>& configs, const Comparable& comparable, const MakeCase& make) {
  std::vector<Group> groups;
  for (size_t i = 0, first = 0; i < configs.size(); ++i) {
    if (i == 0 || !comparable(configs[first], configs[i])) groups.emplace_back(), first = i;
    groups.back().cases.push_back(make(configs[i]));
  }
  return groups;
}

}  // namespace sinter::lab
