// The model benchmark: times configurations and says what the times mean.
#pragma once
#include "lab/measure.h"
#include "lab/output.h"
#include "lab/sweep.h"
#include "plan/peaks.h"
#include "plan/prediction.h"

namespace sinter::lab {

struct BenchOptions {
  SweepOptions sweep;
  std::vector<std::string> peers;  // torch-plain, torch-best, torch-compiled
  std::string python = "python3";
  bool dry_run = false;    // predict, run nothing
  bool published = false;  // show published figures beside ours
  bool child = false;      // started by another sinter: no progress
  bool itemise = false;    // time the stages of starting up
};

// Runs the sweep and writes its output. Returns the exit code.
int bench_model(const BenchOptions& options, OutputOptions output, const MakeModel& make_model);

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

Json compilation_json(const compile::Compilation& compilation, const compile::CompileTime& time);
Json result_of(const MeasuredRun& config, const plan::Prediction& need, const Measurement& m, plan::Peaks& peaks);
Json oom_result(const MeasuredRun& config, const plan::Prediction& need, const std::string& reason, int64_t free_bytes);
Json planned_result(const MeasuredRun& config, const plan::Prediction& need, const plan::Fit& fit);

// Ours and the peers' alternately, each in a fresh process. Appends to the record.
void bench_against_peers(const BenchOptions& options, const std::vector<MeasuredRun>& runs, Json& record,
                         Progress& progress);
// Ours alone, each warm-up in a fresh process, and the one-time costs of one more.
void bench_warmups(const BenchOptions& options, const std::vector<MeasuredRun>& runs, Json& record, Progress& progress);

}  // namespace sinter::lab
