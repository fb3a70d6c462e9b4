// A training step that several ranks take together: what the experiments about such steps have in common. Ranks begin
// each step at once, it takes as long as the slowest of them, and two more are recorded to see what runs beside what.
#pragma once
#include "lab/measure.h"
#include "lab/model_flags.h"
#include "lab/ranks.h"
#include "profile/trace.h"
#include "train/workload.h"

namespace sinter::lab {

struct RankedOptions {
  SweepOptions sweep;
  RankOptions ranks;
  std::string backend = "auto";
  int64_t turns = 2;
  std::string trace;  // a folder; empty: none
};
// The model's flags, the ranks', the output's; and what they say, once the command line has been read.
void add_ranked_flags(Flags& flags, ModelFlags& model, RankedOptions& options, OutputOptions& output);
void take_ranked_flags(const ModelFlags& model, RankedOptions& options, OutputOptions& output);

// The ranks of a case, on every rank of the world; those outside have no group and only keep step.
struct Ranks {
  dist::World& world;
  int64_t count;
  dist::World::Choice choice;
  std::optional<bool> share_a_gpu;  // where they are on GPUs
  std::unique_ptr<ProcessGroup> group;
};

// What a rank held: of experiments about memory, where it could be told.
struct RankMemory {
  struct Held {
    std::optional<int64_t> bytes;
    std::optional<Json> by;  // category -> bytes
  };
  Held after_init, before_step, after_step;  // before_step: gradients are there, and the optimizer is about to use them
  std::optional<Json> peak_by;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("after_init_bytes", self.after_init.bytes);
    f("after_init_by", self.after_init.by);
    f("before_step_bytes", self.before_step.bytes);
    f("before_step_by", self.before_step.by);
    f("after_step_bytes", self.after_step.bytes);
    f("after_step_by", self.after_step.by);
    f("peak_by", self.peak_by);
  }
};

// What one rank measured.
struct RankSteps : RankTimes {
  double communication_ms = 0, exposed_ms = 0;  // a step, of recorded ones
  int64_t peak_bytes = 0;                       // from before the trainer was made to the last timed step
  std::optional<int64_t> predicted_peak_bytes;  // where ranks differ
  RankMemory memory;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    RankTimes::fields(self, f);
    f("communication_ms", self.communication_ms);
    f("exposed_ms", self.exposed_ms);
    f("peak_bytes", self.peak_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    RankMemory::fields(self.memory, f);
  }
};

// What is joined from all ranks. An experiment's own result has more.
struct RankedResult {
  MeasuredRun run;
  std::string backend, backend_why;
  std::optional<bool> share_a_gpu;  // some of the ranks do: not what as many GPUs would take
  int64_t ranks = 1, threads = 1;
  std::string status = "ok", reason;
  std::vector<double> samples_ms;  // of each step, the slowest rank's
  std::optional<double> mean_ms, std_ms, median_ms;
  std::optional<double> communication_ms, exposed_ms, overlap;  // means over ranks
  std::optional<int64_t> collectives;                           // a step
  std::optional<int64_t> peak_bytes, predicted_peak_bytes;      // of a rank, the largest
  std::optional<double> tokens_per_s, loss;                     // of all ranks
  std::vector<RankSteps> by_rank;

  void add_statistics();  // of the samples

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("ranks", self.ranks);
    f("threads", self.threads);
    f("backend", self.backend);
    f("backend_why", self.backend_why);
    f("share_a_gpu", self.share_a_gpu);
    MeasuredRun::fields(self.run, f);
    f("status", self.status);
    f("reason", self.reason);
    f("samples_ms", self.samples_ms);
    f("mean_ms", self.mean_ms);
    f("std_ms", self.std_ms);
    f("median_ms", self.median_ms);
    f("communication_ms", self.communication_ms);
    f("exposed_ms", self.exposed_ms);
    f("overlap", self.overlap);
    f("collectives", self.collectives);
    f("peak_bytes", self.peak_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("tokens_per_s", self.tokens_per_s);
    f("loss", self.loss);
    f("by_rank", self.by_rank);
  }
};

// A run on some ranks. What it measures is joined into result(), and row() is that as the record has it.
class RankedCase : public Case {
 public:
  // `name` and `detail` tell it from what it is compared with: "bucketed", "25 MiB".
  RankedCase(const RankedOptions& options, const MeasuredRun& run, std::shared_ptr<Ranks> ranks, std::string name,
             std::string detail, const MakeModel& make_model);

  std::string text() const override;
  plan::Fit fit() override;
  Json does_not_fit(const std::string& reason, int64_t) override;
  bool run(const Turn& turn, Progress& progress) override;
  Json rows() override;
  std::string outcome(const Json& row) const override;

 protected:
  virtual RankedResult& result() = 0;
  virtual Json row() = 0;
  // What an experiment looks at besides, on every rank: once the trainer is there; as a phase of a step ends; after
  // each step; after the last timed one; at what was recorded.
  virtual void made() {}
  virtual void phase_ended(Phase) {}
  virtual void stepped(Workload&, [[maybe_unused]] int64_t step) {}
  virtual void finished(Workload&, RankSteps&) {}
  virtual void recorded(const Trace&) {}

  ProcessGroup& group() { return *ranks_->group; }

  MeasuredRun run_;  // for the experiment's constructor to complete
  std::shared_ptr<Ranks> ranks_;
  plan::Prediction need_;  // of this rank

 private:
  bool everybody_goes_on();
  bool measure(int64_t timed, bool last, RankSteps& mine, Progress& progress);
  void record(const std::function<void()>& one, RankSteps& mine);
  void join(const std::vector<RankSteps>& members, bool recorded);
  Json complete_row();

  const RankedOptions& options_;
  std::string name_, detail_;
  const MakeModel& make_model_;
};

// An experiment: the cases of a run on some of the ranks are compared with one another.
struct RankedBench {
  std::string command;
  Json config = {};  // of its own flags
  std::function<void(const MeasuredRun& run, const std::shared_ptr<Ranks>& ranks, Group& group)> add_cases = {};
  std::function<void(Ranks& ranks, DeviceType device, Progress& progress)> before =
      {};  // once for each number of ranks
};
// Checks the options, starts the ranks if need be, and runs it. Returns the exit code.
int bench_ranked(const RankedBench& bench, RankedOptions options, const OutputOptions& output);

}  // namespace sinter::lab
