// Two passes of one configuration with every allocation logged: on a device the measurement, on meta the prediction.
#pragma once
#include "memory/snapshot.h"
#include "profile/cost_counter.h"
#include "train/workload.h"

namespace sinter::plan {

struct Walk {
  struct Phase {
    std::string name;  // init; forward, backward, optimizer of the first pass, which makes gradients and moments; then
                       // "forward 2" … of the second, which is like all later ones
    int64_t begin_ns, end_ns;
  };
  std::vector<Phase> phases;
  Snapshot memory;
  MemoryStats first,
      steady;  // peaks up to the end of the first pass; of the second alone, with what is held throughout
  std::map<uint32_t, OpCost> ops;  // of the second pass, by range; on meta only
  int64_t parameters = 0, tensors = 0;
  std::vector<SegmentState> at_start;               // what was held before
  std::vector<std::pair<uint32_t, int64_t>> leaks;  // range, bytes it held more after the second pass than the first
  int64_t outside_bytes = 0;                        // in use on the device but not the allocator's; 0 if unknown
  std::string out_of_memory;                        // the error, if it came to that; the events up to it are here
  bool interrupted = false;
};
// On the configuration's own device, or on meta, which then stands for `on`.
Walk walk(const RunConfig& config, const MakeModel& make_model);
Walk walk_on_meta(const RunConfig& config, const DeviceInfo& on, const MakeModel& make_model);

using ByCategory = std::array<int64_t, memory_category_count>;
struct Usage {
  int64_t bytes = 0;
  ByCategory by = {};
};

// What the events say of a stretch of time.
struct PhaseUsage {
  std::string name;
  Usage peak, end;
};
std::vector<PhaseUsage> usage_by_phase(const Walk& walk);
Usage peak_of(const std::vector<PhaseUsage>& phases);
int64_t peak_reserved(const Walk& walk);

// Allocations of the same tensor in the same place of every layer, together.
struct HeldAtPeak {
  int64_t count = 0, bytes = 0;  // in all
  MemoryCategory category;
  std::string tensor, range, source;  // "f32 [4, 256, 768]", "step/forward/layers.*/attn", "src/nn/layers.cpp:31"
};
std::vector<HeldAtPeak> held_at_peak(const Walk& walk);  // the largest first

}  // namespace sinter::plan
