// The CUDA backend of a build without CUDA.
#include "backend/cuda/cuda.h"
#include "backend/device.h"

namespace sinter {

DeviceBackend* cuda_backend() { return nullptr; }
const char* cuda_missing_reason() {
  return "sinter was built without CUDA: install the CUDA toolkit and run make build again";
}
CudaVersions cuda_versions() { return {}; }
CudaMemory cuda_memory() { return {}; }
void set_matmul_tuning(bool) {}
bool matmul_tuning() { return false; }
std::string matmul_cache_path() { return {}; }
void save_matmul_cache() {}

}  // namespace sinter
