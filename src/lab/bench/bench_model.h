// The model benchmark: times configurations and says what the times mean.
#pragma once
#include "lab/bench/result.h"
#include "lab/measure.h"
#include "lab/sweep.h"
#include "plan/peaks.h"

namespace sinter::lab {

struct BenchOptions {
  SweepOptions sweep;
  std::vector<std::string> peers;  // torch-plain, torch-best, torch-compiled
  std::string python = "python3";
  bool ablate = false;     // the compiler's passes one by one
  bool dry_run = false;    // predict, run nothing
  bool published = false;  // show published figures beside ours
  bool child = false;      // started by another sinter: no progress
  bool itemise = false;    // time the stages of starting up
};
int bench_model(const BenchOptions& options, const OutputOptions& output, const MakeModel& make_model);

// One-time costs, stage by stage, in the order in which a process meets them.
class Startup {
 public:
  explicit Startup(const std::string& device);  // finds the device, then runs a first kernel and a first product
  void add(const std::string& stage, double ms) { stages_[stage] = ms; }
  const Json& stages() const { return stages_; }

 private:
  Json stages_ = Json::object();
};

// None if interrupted.
std::optional<Measurement> measure(const MeasuredRun& config, int64_t timed, const MakeModel& make_model,
                                   Progress& progress);

// Ours and the peers' alternately, each in a fresh process.
std::vector<Group> groups_with_peers(const BenchOptions& options, const std::vector<MeasuredRun>& runs);
// Ours alone, each warm-up in a fresh process.
std::vector<Group> groups_by_warmup(const BenchOptions& options, const std::vector<MeasuredRun>& runs);
// What starting up costs one more, stage by stage; null if that is not known.
Json startup_of_fresh_process(const BenchOptions& options, const MeasuredRun& run);

View bench_model_view(const Json& record);
std::optional<Table> preparation_table(const Json& record);  // compiling and tuning, where there was any

}  // namespace sinter::lab
