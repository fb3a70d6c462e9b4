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

// Products are timed once per problem and the winner kept on disk (Note [Choosing a product algorithm] in matmul.cpp).
void set_matmul_tuning(bool on);  // the default is on; SINTER_MATMUL_TUNING=0 turns it off
bool matmul_tuning();
std::string matmul_cache_path();  // empty without a GPU
void save_matmul_cache();         // now, instead of within a few seconds and at exit

}  // namespace sinter
