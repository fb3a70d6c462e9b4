// The CUDA backend of a build without CUDA.
#include "backend/activity_recorder.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/exchange.h"
#include "backend/device.h"

namespace sinter {

DeviceBackend* cuda_backend() { return nullptr; }
const char* cuda_missing_reason() {
  return "sinter was built without CUDA: install the CUDA toolkit and run make build again";
}
CudaVersions cuda_versions() { return {}; }
CudaMemory cuda_memory() { return {}; }
void leave_gpu() {}
void* allocate_pinned(size_t) { return nullptr; }
void free_pinned(void*) {}
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

// Groups of GPU ranks are refused before anything of this is called.
namespace cuda {
RegisteredMemory::RegisteredMemory(void* p, size_t) : p_(p) {}
RegisteredMemory::~RegisteredMemory() = default;
struct DeviceProgress::Words {};
DeviceProgress::DeviceProgress() : words_(nullptr) {}
DeviceProgress::~DeviceProgress() = default;
void DeviceProgress::begin(uint32_t, void*) {}
void DeviceProgress::end(void*) {}
DeviceProgress::Seen DeviceProgress::seen() const { return {}; }
char* allocation_base(const void*) { return nullptr; }
IpcHandle handle_of(void*) { return {}; }
char* open(const IpcHandle&) { return nullptr; }
void close(char*) {}
bool is_capturing(void*) { return false; }
void listen_to_frees(const void*, std::function<void(const Memory&)>) {}
Exchange::Exchange(int rank, int ranks, Flags* const*) : rank_(rank), ranks_(ranks) {}
void Exchange::run(const Collective&, uint32_t, char* const*, void*, void*) {}
void Exchange::release() {}
}  // namespace cuda

}  // namespace sinter
