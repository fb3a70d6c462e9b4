#include "profile/profiler.h"

#include <unistd.h>

#include "backend/cpu/stream.h"
#include "core/clock.h"

namespace sinter {
namespace {

// The clock around each op: on the CPU that is its time. What other streams run, they record themselves.
class OpClock : public Interceptor {
 public:
  void launching(const OpCall&) override { begin_ = steady_ns(); }
  void called(const OpCall& call, TensorPtrs, const Outputs&) override {
    if (call.op.kernel && begin_) add(call.op);
  }
  void replaying(const OpDef&) override { begin_ = steady_ns(); }
  void replayed(const OpDef& op, const Cost&, double) override {
    if (begin_) add(op);
  }
  std::vector<Activity> activities;

 private:
  void add(const OpDef& op) {
    Activity a;
    a.name = op.name;
    a.begin_ns = begin_;
    a.end_ns = steady_ns();
    a.range = Range::current().id;
    activities.push_back(std::move(a));
    begin_ = 0;
  }
  int64_t begin_ = 0;  // of the call that runs; 0: none does here
};

// A pair of device events around each op: what is left where CUPTI cannot be had.
class OpEvents : public Interceptor {
 public:
  explicit OpEvents(DeviceType device) : device_(device), origin_(device) {
    synchronize(device_);
    origin_.record();
    synchronize(device_);
    origin_ns_ = steady_ns();
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
PassTime timed_pass(const Profiler::Work& work, DeviceType device, Event& begin, Event& end) {
  synchronize(device);
  PassTime t{};
  t.begin_ns = steady_ns();
  begin.record();
  work();
  end.record();
  synchronize(device);
  t.end_ns = steady_ns();
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

// Listens to everything while it lives, whatever happens.
class Profiler::Recording {
 public:
  // The first pass under a recorder fills its buffers and is not kept.
  Recording(Profiler& profiler, const Work& work, bool for_trace)
      : profiler_(profiler), allocator_(allocator_of(profiler.device_)) {
    if (profiler.recorder_) {
      profiler.recorder_->start();
      work();
      synchronize(profiler.device_);
    }
    begin_ns_ = steady_ns();
    counting_.emplace(costs_);
    if (profiler.source_ == "clock") {
      timing_.emplace(clock_);
      cpu::record_streams(true);
    }
    if (profiler.source_ == "events") timing_.emplace(events_.emplace(profiler.device_));
    if (for_trace) {
      ranges_.emplace();
      allocated_ = allocator_.stats().allocated;
      allocator_.take_events();
      allocator_.record_events(true);
    }
  }
  ~Recording() {
    if (profiler_.source_ == "clock") cpu::record_streams(false);
    if (ranges_) allocator_.record_events(false);
  }

  void add_to(Profile& p) {
    auto append = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
    if (profiler_.recorder_) {
      ActivityRecorder::Result r = profiler_.recorder_->stop();
      for (std::vector<Activity>* list : {&r.device, &r.calls})
        std::erase_if(*list, [&](const Activity& a) { return a.begin_ns < begin_ns_; });
      append(p.trace.device, std::move(r.device));
      append(p.trace.calls, std::move(r.calls));
      p.dropped += r.dropped;
    }
    append(p.trace.device, std::move(clock_.activities));
    append(p.trace.device, cpu::take_stream_record());
    if (events_) append(p.trace.device, events_->take());
    if (ranges_) {
      append(p.trace.ranges, ranges_->take());
      append(p.trace.memory, memory_curve(allocator_.take_events(), allocated_));
    }
    for (const auto& [range, cost] : costs_.by_range) p.ops[range].add(cost);
  }

 private:
  Profiler& profiler_;
  CachingAllocator& allocator_;
  int64_t allocated_ = 0, begin_ns_ = 0;
  CostCounter costs_;
  OpClock clock_;
  std::optional<OpEvents> events_;
  std::optional<RangeRecorder> ranges_;
  std::optional<Listening> counting_, timing_;
};

std::optional<Profile> Profiler::run(const Work& work, int64_t warmup, int64_t passes, bool for_trace,
                                     const std::function<bool()>& stopped) {
  Profile p;
  p.source = source_;
  p.why_not = why_not_;
  p.passes = passes;
  Event begin(device_), end(device_);
  for (int64_t i = 0; i < warmup && !stopped(); ++i) work();
  int64_t turns = std::min<int64_t>(passes, 2);
  for (int64_t turn = 0; turn < turns; ++turn) {
    int64_t count = (passes + turns - 1 - turn) / turns;
    for (int64_t i = 0; i < count && !stopped(); ++i) {
      PassTime t = timed_pass(work, device_, begin, end);
      p.plain_ms.push_back(double(t.end_ns - t.begin_ns) / 1e6);
    }
    Recording recording(*this, work, for_trace);
    for (int64_t i = 0; i < count && !stopped(); ++i) {
      PassTime t = timed_pass(work, device_, begin, end);
      p.profiled_ms.push_back(double(t.end_ns - t.begin_ns) / 1e6);
      p.device_ms.push_back(t.device_ms);
      p.trace.steps.emplace_back(t.begin_ns, t.end_ns);
    }
    recording.add_to(p);
  }
  if (stopped()) return {};
  DeviceInfo info = backend_of(device_).info();
  p.trace.device_name = info.name;
  p.trace.device_memory = info.memory_bytes;
  p.trace.multiprocessors = info.multiprocessors;
  p.trace.compute_capability = info.compute_capability;
  p.trace.on_host = device_ == DeviceType::cpu;
  return p;
}

}  // namespace sinter
