// A training run's result, as its record has it.
#pragma once
#include "lab/curve.h"
#include "lab/sweep.h"

namespace sinter::lab {

struct TrainResult {
  MeasuredRun run;
  int64_t ranks = 1, threads = 1, global_batch = 1;
  std::string status = "ok", reason;                     // ok, interrupted, not finite, oom
  int64_t resumed_from = 0, steps_done = 0, tokens = 0;  // tokens: in these steps
  int64_t skipped = 0;                                   // updates
  double epochs = 0;
  std::optional<double> first_loss, loss, validation_loss;  // loss: of the last step
  std::optional<double> tokens_per_s, mfu;                  // by the median step
  double seconds = 0;                                       // in this process, evaluations included
  std::optional<int64_t> peak_bytes;                        // of this rank
  int64_t predicted_peak_bytes = 0, parameters = 0;
  Json data;                       // files, and how many sequences
  std::optional<std::string> out;  // the folder of checkpoints
  Json saves = Json::array();      // each: step, bytes and times of this rank, and an error where it failed
  Curve curve;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("ranks", self.ranks);
    f("threads", self.threads);
    MeasuredRun::fields(self.run, f);
    f("global_batch", self.global_batch);
    f("status", self.status);
    f("reason", self.reason);
    f("resumed_from", self.resumed_from);
    f("steps_done", self.steps_done);
    f("tokens", self.tokens);
    f("skipped", self.skipped);
    f("epochs", self.epochs);
    f("first_loss", self.first_loss);
    f("loss", self.loss);
    f("validation_loss", self.validation_loss);
    f("tokens_per_s", self.tokens_per_s);
    f("mfu", self.mfu);
    f("seconds", self.seconds);
    f("peak_bytes", self.peak_bytes);
    f("predicted_peak_bytes", self.predicted_peak_bytes);
    f("parameters", self.parameters);
    f("data", self.data);
    f("out", self.out);
    f("saves", self.saves);
    f("curve", self.curve);
  }
};

}  // namespace sinter::lab
