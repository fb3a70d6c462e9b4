#include "plan/walk.h"

#include <algorithm>
#include <map>

#include "backend/cuda/cuda.h"
#include "core/clock.h"
#include "profile/kernel_table.h"
#include "system/signals.h"

namespace sinter::plan {
namespace {

std::map<uint32_t, int64_t> held_by_range(const CachingAllocator& allocator) {
  std::map<uint32_t, int64_t> held;
  for (const SegmentState& s : allocator.segments())
    for (const BlockState& b : s.blocks)
      if (b.used) held[b.range] += b.bytes;
  return held;
}

// Records for as long as it lives, whatever happens.
class Recording {
 public:
  explicit Recording(CachingAllocator& a) : allocator_(a) {
    allocator_.take_events();
    allocator_.record_events(true);
  }
  ~Recording() { allocator_.record_events(false); }

 private:
  CachingAllocator& allocator_;
};

Usage held_in(const std::vector<SegmentState>& segments) {
  Usage u;
  for (const SegmentState& s : segments)
    for (const BlockState& b : s.blocks)
      if (b.used) u.bytes += b.bytes, u.by[size_t(b.category)] += b.bytes;
  return u;
}

// Calls visit(event, usage after it) for every alloc and free.
template <class F> void replay(const Walk& run, F&& visit) {
  Usage u = held_in(run.at_start);
  for (const MemoryEvent& e : run.memory.events) {
    int sign = e.action == MemoryEvent::alloc ? 1 : e.action == MemoryEvent::free ? -1 : 0;
    if (sign == 0) continue;
    u.bytes += sign * e.bytes;
    u.by[size_t(e.category)] += sign * e.bytes;
    visit(e, u);
  }
}

struct Interrupted {};

std::string source_of(const RangeNode& op) {
  // The module's line says more than that of the op's definition, which is the same for every caller.
  const RangeNode& n = op.kind == RangeKind::op && op.parent->parent ? *op.parent : op;
  return n.parent ? fmt::format("{}:{}", n.where.file, n.where.line) : "";
}

Walk walk_on(DeviceType where, const RunConfig& c, const MakeModel& make_model) {
  CachingAllocator& allocator = allocator_of(where);
  allocator.release_cached();
  Walk w;
  w.at_start = allocator.segments();
  Recording recording(allocator);
  int64_t begin = steady_ns();
  auto end_phase = [&](const std::string& name) {
    synchronize(where);
    int64_t end = steady_ns();
    w.phases.push_back({name, begin, end});
    begin = end;
    if (where != DeviceType::meta && interrupted()) throw Interrupted{};  // a prediction is whole, and soon there
  };
  auto keep_events = [&] {
    w.memory.segments = allocator.segments();
    w.memory.events = allocator.take_events();
  };
  allocator.reset_peak();
  try {
    Workload work(c, where, make_model);
    w.parameters = work.trainer().parameters().count();
    w.tensors = int64_t(work.trainer().parameters().entries().size());
    end_phase("init");
    work.run([&](Phase phase) { end_phase(name_of(phase)); });
    w.first = allocator.stats();
    allocator.reset_peak();
    std::map<uint32_t, int64_t> after_first = held_by_range(allocator);
    CostCounter costs;
    {
      std::optional<Listening> counting;  // a device that is listened to would run in another way
      if (where == DeviceType::meta) counting.emplace(costs);
      work.run([&](Phase phase) { end_phase(std::string(name_of(phase)) + " 2"); });
    }
    w.ops = std::move(costs.by_range);
    w.steady = allocator.stats();
    for (auto [range, bytes] : held_by_range(allocator))
      if (int64_t more = bytes - after_first[range]; more > 0) w.leaks.emplace_back(range, more);
    if (where == DeviceType::cuda) {
      CudaMemory m = cuda_memory();
      w.outside_bytes = m.total - m.free - allocator.stats().reserved;
    }
    keep_events();  // while the model holds its memory
  } catch (const Interrupted&) {
    w.interrupted = true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory || where == DeviceType::meta) throw;  // meta has no end: a budget was refused
    w.out_of_memory = e.what();
    w.phases.push_back({"out of memory", begin, steady_ns()});
    keep_events();
  }
  w.memory.memory_bytes = backend_of(where).info().memory_bytes;
  allocator.release_cached();
  return w;
}

}  // namespace

Walk walk(const RunConfig& c, const MakeModel& make_model) { return walk_on(c.device, c, make_model); }

Walk walk_on_meta(const RunConfig& c, const DeviceInfo& on, const MakeModel& make_model) {
  MetaTarget target(on);
  Walk w = walk_on(DeviceType::meta, c, make_model);
  w.memory.memory_bytes = on.memory_bytes;
  return w;
}

std::vector<PhaseUsage> usage_by_phase(const Walk& run) {
  std::vector<PhaseUsage> phases;
  Usage now = held_in(run.at_start);
  size_t i = 0;
  auto begin_phase = [&] { phases.push_back({run.phases[i].name, now, now}); };
  begin_phase();
  replay(run, [&](const MemoryEvent& e, const Usage& after) {
    while (i + 1 < run.phases.size() && e.time_ns >= run.phases[i].end_ns) {
      ++i;
      begin_phase();
    }
    now = phases.back().end = after;
    if (now.bytes > phases.back().peak.bytes) phases.back().peak = now;
  });
  while (++i < run.phases.size()) begin_phase();
  return phases;
}

Usage peak_of(const std::vector<PhaseUsage>& phases) {
  Usage peak;
  for (const PhaseUsage& p : phases)
    if (p.peak.bytes > peak.bytes) peak = p.peak;
  return peak;
}

int64_t peak_reserved(const Walk& run) {
  int64_t now = 0;
  for (const SegmentState& s : run.at_start) now += s.bytes;
  int64_t peak = now;
  for (const MemoryEvent& e : run.memory.events) {
    if (e.action == MemoryEvent::segment_alloc) peak = std::max(peak, now += e.bytes);
    if (e.action == MemoryEvent::segment_free) now -= e.bytes;
  }
  return peak;
}

std::vector<HeldAtPeak> held_at_peak(const Walk& run) {
  int64_t peak = peak_of(usage_by_phase(run)).bytes;
  std::map<uint64_t, const MemoryEvent*> live, at_peak;
  bool found = false;
  replay(run, [&](const MemoryEvent& e, const Usage& after) {
    if (e.action == MemoryEvent::alloc) live[e.address] = &e;
    else live.erase(e.address);
    if (!found && after.bytes == peak) at_peak = live, found = true;
  });
  std::map<std::string, HeldAtPeak> groups;
  for (const auto& [address, e] : at_peak) {
    const RangeNode& range = range_of(e->range);
    HeldAtPeak h{
        0, 0, e->category, e->tensor.rank >= 0 ? describe(e->tensor) : "", general_path(range), source_of(range)};
    HeldAtPeak& g = groups.emplace(fmt::format("{}|{}|{}", h.range, h.tensor, int(h.category)), h).first->second;
    ++g.count;
    g.bytes += e->bytes;
  }
  std::vector<HeldAtPeak> order;
  for (auto& [key, group] : groups) order.push_back(group);
  std::sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  return order;
}

}  // namespace sinter::plan
