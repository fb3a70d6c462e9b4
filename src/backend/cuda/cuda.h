// What the engine may ask of CUDA beyond DeviceBackend. No CUDA header here; no_cuda.cpp answers in builds without it.
#pragma once
#include <cstdint>
#include <string>

namespace sinter {

// Versions as CUDA writes them (13000 is 13.0); 0 when absent.
struct CudaVersions {
  int runtime = 0, driver = 0, cublaslt = 0;
};
CudaVersions cuda_versions();

struct CudaMemory {
  int64_t free = 0, total = 0;
};
CudaMemory cuda_memory();  // zeros without a GPU

}  // namespace sinter
