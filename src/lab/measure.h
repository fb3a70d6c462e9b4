// Timing passes of some work: device events per phase, and the wall clock around a synchronised pass.
#pragma once
#include <functional>

#include "backend/cuda/cuda.h"
#include "lab/compilation.h"
#include "lab/driver.h"
#include "lab/fields.h"
#include "train/trainer.h"

namespace sinter::lab {

// Samples, and what they come to.
struct Times {
  std::vector<double> samples_ms;
  double mean_ms = 0, std_ms = 0, median_ms = 0;
  std::optional<double> tflops;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("samples_ms", self.samples_ms);
    f("mean_ms", self.mean_ms);
    f("std_ms", self.std_ms);
    f("median_ms", self.median_ms);
    f("tflops", self.tflops);
  }
};
Times times_of(const std::vector<double>& samples_ms, double flops = 0);

// What one of several ranks measured of a case.
struct RankTimes {
  int64_t rank = 0;
  int64_t host = 0;         // ranks with one number share a host
  std::string device_uuid;  // of its GPU; empty on a CPU
  std::vector<double> samples_ms;

  template <class Self, class F> static void fields(Self& self, F&& f) {
    f("rank", self.rank);
    f("host", self.host);
    f("device_uuid", self.device_uuid);
    f("samples_ms", self.samples_ms);
  }
};

// All passes of one configuration, warm-up included.
struct Measurement {
  std::vector<double> wall_ms;                 // around a synchronised pass
  std::vector<std::vector<double>> phases_ms;  // by device events
  std::vector<bool> timed;                     // false: warm-up
  MemoryStats memory;                          // peaks of the timed passes
  double loss = 0;
  double setup_ms = 0;  // model, parameters, batch
  Json clocks = Json::object();
  std::optional<CompilationResult> compiled;  // none: eager
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

// A case whose passes are timed. M is what a turn gives; later turns are appended to it.
template <class M> class MeasuredCase : public Case {
 public:
  explicit MeasuredCase(int64_t passes) : passes_(passes) {}

  bool run(const Turn& turn, Progress& progress) final {
    int64_t timed = turn.share(passes_);
    if (timed == 0) return true;
    std::optional<M> m = measure(timed, progress);
    if (!m) return false;
    if (measurement_) measurement_->append(*m);
    else measurement_ = std::move(m);
    return true;
  }
  Json rows() final {
    const std::optional<M>& m = measurement_ ? measurement_ : doubted_;
    return m ? Json::array({result(*m)}) : Json::array();
  }
  // A bad moment may have been the peak's or the result's: the peak is measured again first.
  std::string doubt() final {
    if (!measurement_ || doubt_of(*measurement_).empty()) return "";
    confirm_peaks();
    return doubt_of(*measurement_);
  }
  void forget() final { doubted_ = std::exchange(measurement_, std::nullopt); }

 protected:
  virtual std::optional<M> measure(int64_t timed, Progress& progress) = 0;  // none if interrupted
  virtual Json result(const M& measurement) = 0;
  virtual std::string doubt_of(const M& measurement) = 0;  // faster than the peaks allow
  virtual void confirm_peaks() = 0;

 private:
  int64_t passes_;
  std::optional<M> measurement_, doubted_;  // the latter until another takes its place
};

double ms_since(int64_t begin_ns);  // on the clock of steady_ns()

// The reason to doubt a time, or nothing: more FLOP/s than the machine can do means that something was not waited for.
std::string doubt(const std::string& what, double flops, double ms, double peak);

}  // namespace sinter::lab
