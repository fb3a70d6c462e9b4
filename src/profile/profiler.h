// Runs passes of some work while recording what the device does, and for whom.
#pragma once
#include <functional>
#include <memory>

#include "backend/activity_recorder.h"
#include "ops/context.h"
#include "profile/cost_counter.h"
#include "profile/trace.h"
#include "system/signals.h"

namespace sinter {

struct Profile {
  std::string source;              // "cupti", "events" (one pair of device events per op) or "clock" (CPU)
  std::string why_not;             // why it is not CUPTI, where it was wanted
  Trace trace;                     // all profiled passes; its device times are what the tables are made of
  std::map<uint32_t, OpCost> ops;  // by range of kind op
  int64_t passes = 0, dropped = 0;
  std::vector<double> plain_ms, profiled_ms;  // wall clock around synchronised passes, without and with recording
  std::vector<double> device_ms;              // of the profiled ones, between device events
};

enum class ProfilerChoice { automatic, cupti, events };
ProfilerChoice profiler_named(const std::string& name);

class Profiler {
 public:
  using Work = std::function<void()>;  // one pass

  // Before the model is made: what is captured into graphs later keeps its names.
  Profiler(DeviceType device, ProfilerChoice choice);
  ~Profiler();

  // Warm-up, then `passes` plain and `passes` recorded ones, in two turns each, so that drift of the machine meets
  // both. For a trace also the host's ranges and the memory in use, which costs a little more. None if interrupted.
  // `stopped` says whether it is: ranks, whose passes wait for each other, must not decide that one by one.
  std::optional<Profile> run(const Work& work, int64_t warmup, int64_t passes, bool for_trace,
                             const std::function<bool()>& stopped = interrupted);

 private:
  class Correlator;
  class Recording;
  DeviceType device_;
  std::string source_, why_not_;
  std::unique_ptr<ActivityRecorder> recorder_;
  std::unique_ptr<Correlator> correlator_;
};

}  // namespace sinter
