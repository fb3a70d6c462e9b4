// Timing passes of some work: device events per phase, and the wall clock around a synchronised pass.
#pragma once
#include <functional>

#include "backend/cuda/cuda.h"
#include "lab/output.h"
#include "system/json.h"
#include "train/trainer.h"

namespace sinter::lab {

// All passes of one configuration, warm-up included.
struct Measurement {
  std::vector<double> wall_ms;                 // around a synchronised pass
  std::vector<std::vector<double>> phases_ms;  // by device events
  std::vector<bool> timed;                     // false: warm-up
  MemoryStats memory;                          // peaks of the timed passes
  double loss = 0;
  double setup_ms = 0;  // model, parameters, batch
  Json clocks = Json::object();
  Json compiled;  // what compiling did and cost; null: eager
  ProductTuning tuning;

  void append(const Measurement& later);
  std::vector<double> timed_wall_ms() const;
  std::vector<double> timed_phase_ms(size_t phase) const;
};

struct TimedWork {
  DeviceType device;
  std::string text;  // for the progress line
  int phases;
  int64_t warmup;
  std::function<void(const Trainer::Mark&)> run;  // one pass
  std::function<void()> before = {};              // submitted ahead of each pass, and seen by the wall clock alone
  double seconds = 0;  // stops the timed passes after so long, but not before the third; 0: all of them
};
// Fills in all but the loss and the set-up. False if interrupted.
bool time_passes(const TimedWork& work, int64_t timed, Measurement& m, Progress& progress);

double ms_since(int64_t begin_ns);  // on the clock of steady_ns()

// Variants to compare are timed in two turns, so that drift of the machine meets all of them: the passes of each turn.
std::vector<int64_t> turns_of(int64_t steps, size_t variants);

// The reason to doubt a time, or nothing: more FLOP/s than the machine can do means that something was not waited for.
std::string doubt(const std::string& what, double flops, double ms, double peak);

}  // namespace sinter::lab
