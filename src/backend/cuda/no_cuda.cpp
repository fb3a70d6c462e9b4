// The CUDA backend of a build without CUDA.
#include "backend/activity_recorder.h"
#include "backend/cuda/cuda.h"
#include "backend/device.h"

namespace sinter {

DeviceBackend* cuda_backend() { return nullptr; }
const char* cuda_missing_reason() {
  return "sinter was built without CUDA: install the CUDA toolkit and run make build again";
}
CudaVersions cuda_versions() { return {}; }
CudaMemory cuda_memory() { return {}; }
ProductTuning product_tuning() { return {}; }
void restart_product_tuning() {}
void set_product_tuning(bool) {}
bool product_tuning_is_on() { return true; }
std::unique_ptr<ActivityRecorder> cuda_activity_recorder(std::string& why_not) {
  why_not = cuda_missing_reason();
  return nullptr;
}
bool nvtx_tool_attached() { return false; }
void nvtx_push(const char*) {}
void nvtx_pop() {}

}  // namespace sinter
