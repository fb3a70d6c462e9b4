// A device's memory as pytorch.org/memory_viz and torch.cuda._memory_viz read it: the segments as they are at the end
// and every event that led there. Also plain JSON, which the newer viewer opens too.
#pragma once
#include "memory/caching_allocator.h"

namespace sinter {

struct Snapshot {
  std::vector<MemoryEvent> events;     // oldest first
  std::vector<SegmentState> segments;  // after the last of them
  int64_t memory_bytes = 0;            // of the device
};
std::string to_pickle(const Snapshot& snapshot);
std::string to_json(const Snapshot& snapshot);
std::string describe(const TensorRef& tensor);  // "fp32 [4, 256, 768]"

}  // namespace sinter
