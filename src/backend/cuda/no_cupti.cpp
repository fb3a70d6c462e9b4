// The profiler's view of the device in a build whose CUDA toolkit lacks CUPTI or NVTX.
#include "backend/activity_recorder.h"

namespace sinter {

std::unique_ptr<ActivityRecorder> cuda_activity_recorder(std::string& why_not) {
  why_not =
      "sinter was built without CUPTI: install the toolkit's CUPTI and NVTX headers (cuda-cupti-dev, cuda-nvtx) and "
      "build again";
  return nullptr;
}
bool nvtx_tool_attached() { return false; }
void nvtx_push(const char*) {}
void nvtx_pop() {}

}  // namespace sinter
