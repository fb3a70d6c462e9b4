// Records what a device does. One at a time; CUDA's stands on CUPTI, which needs no privileges for this.
#pragma once
#include <memory>
#include <vector>

#include "core/activity.h"

namespace sinter {

class ActivityRecorder {
 public:
  virtual ~ActivityRecorder() = default;

  // What this thread launches between the two belongs to the range. Also heard while nothing is recorded: a CUDA graph
  // captured now is replayed, under these names, later.
  virtual void enter(uint32_t range) = 0;
  virtual void leave() = 0;

  virtual void start() = 0;
  struct Result {
    std::vector<Activity> device, calls;
    int64_t dropped = 0;  // records the library had no room for
  };
  virtual Result stop() = 0;  // waits for the device
};

// Null where there can be none, and `why_not` says why: no library, another profiler is attached, not permitted.
std::unique_ptr<ActivityRecorder> cuda_activity_recorder(std::string& why_not);

// Ranges as external tools see them (nsys, ncu), if one is attached.
bool nvtx_tool_attached();
void nvtx_push(const char* name);
void nvtx_pop();

}  // namespace sinter
