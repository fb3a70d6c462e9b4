#include "lab/profiler.h"

#include <chrono>
#include <unistd.h>

#include "lab/process.h"

namespace sinter::lab {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Adds up what each op had to do.
class CostCounter : public Interceptor {
 public:
  void called(const OpCall& call, TensorPtrs, const Outputs& outputs) override {
    if (!call.op.kernel) return;
    OpCost& c = ops[Range::current().id];
    ++c.calls;
    c.bytes += bytes_moved(call, outputs);
    if (!call.op.cost) return;
    Cost cost = call.op.cost(call, outputs);
    c.matmul_flops += cost.matmul_flops;
    c.other_flops += cost.other_flops;
  }
  std::map<uint32_t, OpCost> ops;
};

// The clock around each op: on the CPU that is its time.
class OpClock : public Interceptor {
 public:
  void launching(const OpCall&) override { begin_ = now_ns(); }
  void called(const OpCall& call, TensorPtrs, const Outputs&) override {
    if (!call.op.kernel) return;
    Activity a;
    a.name = call.op.name;
    a.begin_ns = begin_;
    a.end_ns = now_ns();
    a.range = Range::current().id;
    activities.push_back(std::move(a));
  }
  std::vector<Activity> activities;

 private:
  int64_t begin_ = 0;
};

// A pair of device events around each op: what is left where CUPTI cannot be had.
class OpEvents : public Interceptor {
 public:
  explicit OpEvents(DeviceType device) : device_(device), origin_(device) {
    synchronize(device_);
    origin_.record();
    synchronize(device_);
    origin_ns_ = now_ns();
  }
  void launching(const OpCall&) override {
    pairs_.push_back(std::make_unique<Pair>(device_));
    pairs_.back()->begin.record();
  }
  void called(const OpCall& call, TensorPtrs, const Outputs&) override {
    if (!call.op.kernel) return;
    Pair& p = *pairs_.back();
    p.end.record();
    p.name = call.op.name;
    p.range = Range::current().id;
  }
  std::vector<Activity> take() {
    synchronize(device_);
    std::vector<Activity> activities;
    for (const auto& p : pairs_) {
      Activity a;
      a.name = p->name;
      a.range = p->range;
      a.begin_ns = origin_ns_ + int64_t(p->begin.ms_since(origin_) * 1e6);
      a.end_ns = origin_ns_ + int64_t(p->end.ms_since(origin_) * 1e6);
      a.stream = 7;
      activities.push_back(std::move(a));
    }
    pairs_.clear();
    return activities;
  }

 private:
  struct Pair {
    explicit Pair(DeviceType d) : begin(d), end(d) {}
    Event begin, end;
    const char* name = "";
    uint32_t range = 0;
  };
  DeviceType device_;
  Event origin_;
  int64_t origin_ns_ = 0;
  std::vector<std::unique_ptr<Pair>> pairs_;
};

// One pass, synchronised before and after: wall clock and device events.
struct PassTime {
  int64_t begin_ns, end_ns;
  double device_ms;
};
PassTime timed_pass(Workload& work, DeviceType device, Event& begin, Event& end) {
  synchronize(device);
  PassTime t{};
  t.begin_ns = now_ns();
  begin.record();
  work.run();
  end.record();
  synchronize(device);
  t.end_ns = now_ns();
  t.device_ms = end.ms_since(begin);
  return t;
}

std::vector<std::pair<int64_t, int64_t>> memory_curve(const std::vector<MemoryEvent>& events, int64_t at_start) {
  std::vector<std::pair<int64_t, int64_t>> curve;
  int64_t allocated = at_start;
  for (const MemoryEvent& e : events) {
    if (e.action == MemoryEvent::alloc) allocated += e.bytes;
    else if (e.action == MemoryEvent::free) allocated -= e.bytes;
    else continue;
    curve.emplace_back(e.time_ns, allocated);
  }
  return curve;
}

}  // namespace

ProfilerChoice profiler_named(const std::string& name) {
  if (name.empty() || name == "auto") return ProfilerChoice::automatic;
  if (name == "cupti") return ProfilerChoice::cupti;
  if (name == "events") return ProfilerChoice::events;
  fail_with(ErrorKind::usage, "--profiler {}: unknown; choose auto, cupti or events", name);
}

// Tells the recorder of the ranges this process enters.
class Profiler::Correlator : public RangeListener {
 public:
  explicit Correlator(ActivityRecorder& recorder) : recorder_(recorder) {}
  void entered(const RangeNode& range) override { recorder_.enter(range.id); }
  void left(const RangeNode&) override { recorder_.leave(); }

 private:
  ActivityRecorder& recorder_;
};

Profiler::Profiler(DeviceType device, ProfilerChoice choice) : device_(device) {
  if (device == DeviceType::cpu) {
    check(choice == ProfilerChoice::automatic, "--profiler: on the CPU ops are timed by the clock; leave the flag out");
    source_ = "clock";
    return;
  }
  source_ = "events";
  if (choice == ProfilerChoice::events) return;
  recorder_ = cuda_activity_recorder(why_not_);
  check(recorder_ || choice == ProfilerChoice::automatic, "--profiler cupti: {}; --profiler events works without it",
        why_not_);
  if (!recorder_) return;
  source_ = "cupti";
  correlator_ = std::make_unique<Correlator>(*recorder_);
}
Profiler::~Profiler() = default;

std::optional<Profile> Profiler::run(Workload& work, int64_t warmup, int64_t passes, bool for_trace) {
  Profile p;
  p.source = source_;
  p.why_not = why_not_;
  p.passes = passes;
  Event begin(device_), end(device_);
  for (int64_t i = 0; i < warmup; ++i) {
    if (interrupted()) return {};
    work.run();
  }
  for (int64_t i = 0; i < passes; ++i) {
    if (interrupted()) return {};
    PassTime t = timed_pass(work, device_, begin, end);
    p.plain_ms.push_back(double(t.end_ns - t.begin_ns) / 1e6);
  }

  CachingAllocator& allocator = allocator_of(device_);
  int64_t allocated = allocator.stats().allocated;
  if (for_trace) allocator.record_events(true);
  {
    CostCounter costs;
    OpClock clock;
    std::optional<OpEvents> events;
    std::optional<RangeRecorder> ranges;
    if (for_trace) ranges.emplace();
    Listening counting(costs);
    std::optional<Listening> timing;
    if (source_ == "clock") timing.emplace(clock);
    if (source_ == "events") timing.emplace(events.emplace(device_));
    if (recorder_) recorder_->start();
    bool stopped = false;
    for (int64_t i = 0; i < passes && !(stopped = interrupted()); ++i) {
      PassTime t = timed_pass(work, device_, begin, end);
      p.profiled_ms.push_back(double(t.end_ns - t.begin_ns) / 1e6);
      p.device_ms.push_back(t.device_ms);
      p.trace.steps.emplace_back(t.begin_ns, t.end_ns);
    }
    if (recorder_) {
      ActivityRecorder::Result r = recorder_->stop();
      p.trace.device = std::move(r.device);
      p.trace.calls = std::move(r.calls);
      p.dropped = r.dropped;
    }
    if (source_ == "clock") p.trace.device = std::move(clock.activities);
    if (events) p.trace.device = events->take();
    if (ranges) p.trace.ranges = ranges->take();
    p.ops = std::move(costs.ops);
    if (stopped) return {};
  }
  if (for_trace) {
    p.trace.memory = memory_curve(allocator.take_events(), allocated);
    allocator.record_events(false);
  }
  DeviceInfo info = backend_of(device_).info();
  p.trace.device_name = info.name;
  p.trace.device_memory = info.memory_bytes;
  p.trace.multiprocessors = info.multiprocessors;
  p.trace.compute_capability = info.compute_capability;
  p.trace.on_host = device_ == DeviceType::cpu;
  return p;
}

}  // namespace sinter::lab
