#include "lab/memory_run.h"

#include <algorithm>
#include <map>

#include "backend/cuda/cuda.h"
#include "core/clock.h"
#include "lab/process.h"
#include "profile/kernel_table.h"

namespace sinter::lab {
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
template <class F> void replay(const MemoryRun& run, F&& visit) {
  Usage u = held_in(run.at_start);
  for (const MemoryEvent& e : run.snapshot.events) {
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

}  // namespace

MemoryRun run_memory(const RunConfig& c, DeviceType where, const MakeModel& make_model) {
  MetaTarget target(c.device);
  CachingAllocator& allocator = allocator_of(where);
  allocator.release_cached();
  MemoryRun run;
  run.at_start = allocator.segments();
  Recording recording(allocator);
  int64_t begin = steady_ns();
  auto end_phase = [&](const std::string& name) {
    synchronize(where);
    int64_t end = steady_ns();
    run.phases.push_back({name, begin, end});
    begin = end;
    if (interrupted()) throw Interrupted{};
  };
  auto keep_events = [&] {
    run.snapshot.segments = allocator.segments();
    run.snapshot.events = allocator.take_events();
  };
  try {
    Workload work(c, where, make_model);
    end_phase("init");
    work.run([&](int phase) { end_phase(phase_names[phase]); });
    std::map<uint32_t, int64_t> after_first = held_by_range(allocator);
    work.run([&](int phase) { end_phase(std::string(phase_names[phase]) + " 2"); });
    for (auto [range, bytes] : held_by_range(allocator))
      if (int64_t more = bytes - after_first[range]; more > 0) run.leaks.emplace_back(range, more);
    if (where == DeviceType::cuda) {
      CudaMemory m = cuda_memory();
      run.outside_bytes = m.total - m.free - allocator.stats().reserved;
    }
    keep_events();  // while the model holds its memory
  } catch (const Interrupted&) {
    run.interrupted = true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    run.out_of_memory = e.what();
    run.phases.push_back({"out of memory", begin, steady_ns()});
    keep_events();
  }
  run.snapshot.memory_bytes = backend_of(where).info().memory_bytes;
  allocator.release_cached();
  return run;
}

std::vector<PhaseUsage> usage_by_phase(const MemoryRun& run) {
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

int64_t peak_reserved(const MemoryRun& run) {
  int64_t now = 0;
  for (const SegmentState& s : run.at_start) now += s.bytes;
  int64_t peak = now;
  for (const MemoryEvent& e : run.snapshot.events) {
    if (e.action == MemoryEvent::segment_alloc) peak = std::max(peak, now += e.bytes);
    if (e.action == MemoryEvent::segment_free) now -= e.bytes;
  }
  return peak;
}

std::vector<HeldAtPeak> held_at_peak(const MemoryRun& run) {
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

namespace {

// Interns what a column refers to by index.
class Ranges {
 public:
  int index(const RangeNode& n) {
    auto [it, added] = index_.emplace(n.id, 0);
    if (!added) return it->second;
    int parent = n.parent ? index(*n.parent) : -1;
    static const char* const kinds[] = {"module", "phase", "op"};
    list.push_back({{"name", n.name},
                    {"parent", parent},
                    {"kind", kinds[int(n.kind)]},
                    {"file", n.parent ? n.where.file : ""},
                    {"line", n.where.line}});
    return index_[n.id] = int(list.size()) - 1;
  }
  Json list = Json::array();

 private:
  std::map<uint32_t, int> index_;
};

}  // namespace

Json timeline_json(const MemoryRun& run, const RunConfig& c, bool predicted) {
  int64_t origin = run.phases.front().begin_ns;
  auto us = [&](int64_t ns) { return double(ns - origin) / 1e3; };
  Json t = {{"title", c.text()},
            {"predicted", predicted},
            {"device", !predicted                     ? backend_of(c.device).info().name
                       : c.device == DeviceType::cuda ? "a CUDA GPU"
                                                      : "the CPU"},
            {"duration_us", us(run.phases.back().end_ns)},
            {"capacity", run.snapshot.memory_bytes > 0 ? Json(run.snapshot.memory_bytes) : Json()},
            {"clock", predicted ? "time of the dry run, which computes nothing: order and proportion, not duration"
                                : "host time at which memory was handed out and given back"}};
  t["categories"] = Json::array();
  for (int i = 0; i < memory_category_count; ++i) t["categories"].push_back(name_of(MemoryCategory(i)));
  t["phases"] = Json::array();
  for (const auto& p : run.phases)
    t["phases"].push_back({{"name", p.name}, {"begin", us(p.begin_ns)}, {"end", us(p.end_ns)}});

  Ranges ranges;
  ranges.index(range_of(0));
  std::map<std::string, int> tensors;
  std::vector<double> begin;
  std::vector<Json> end;
  std::vector<int64_t> bytes, address;
  std::vector<int> category, range, tensor;
  std::map<uint64_t, size_t> open;
  auto add = [&](double time, uint64_t at, int64_t size, MemoryCategory cat, uint32_t where, const TensorRef& what) {
    int description = -1;
    if (what.rank >= 0) description = tensors.emplace(describe(what), int(tensors.size())).first->second;
    open[at] = begin.size();
    begin.push_back(time);
    end.emplace_back();
    bytes.push_back(size);
    address.push_back(int64_t(at));
    category.push_back(int(cat));
    range.push_back(ranges.index(range_of(where)));
    tensor.push_back(description);
  };
  int64_t reserved = 0;
  for (const SegmentState& s : run.at_start) {
    reserved += s.bytes;
    for (const BlockState& b : s.blocks)
      if (b.used) add(0, b.address, b.bytes, b.category, b.range, b.tensor);
  }
  Json curve = Json::array({Json::array({0, reserved})});
  for (const MemoryEvent& e : run.snapshot.events) {
    double time = us(e.time_ns);
    if (e.action == MemoryEvent::alloc) {
      add(time, e.address, e.bytes, e.category, e.range, e.tensor);
    } else if (e.action == MemoryEvent::free) {
      if (auto it = open.find(e.address); it != open.end()) end[it->second] = time, open.erase(it);
    } else if (e.action != MemoryEvent::out_of_memory) {
      reserved += e.action == MemoryEvent::segment_alloc ? e.bytes : -e.bytes;
      curve.push_back(Json::array({time, reserved}));
    }
  }
  std::vector<std::string> names(tensors.size());
  for (const auto& [name, i] : tensors) names[size_t(i)] = name;
  t["ranges"] = ranges.list;
  t["tensors"] = names;
  t["begin"] = begin, t["end"] = end, t["bytes"] = bytes, t["address"] = address;
  t["category"] = category, t["range"] = range, t["tensor"] = tensor;
  t["reserved"] = curve;
  return t;
}

}  // namespace sinter::lab
