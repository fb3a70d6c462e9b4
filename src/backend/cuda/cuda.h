// What the engine may ask of CUDA beyond DeviceBackend. No CUDA header here; no_cuda.cpp answers in builds without it.
#pragma once
#include <cstddef>
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

// Algorithms of GEMMs, which are timed when a GEMM is first met (Note [Choosing a
// product algorithm] in matmul.cpp).
struct ProductTuning {
  int64_t tuned = 0;        // GEMMs whose algorithms were timed …
  double seconds = 0;       // … and how long that took
  int64_t used = 0;         // different GEMMs that ran
  uint64_t table_hash = 0;  // of them and their algorithms, whatever the order
};
ProductTuning product_tuning();    // since it was last restarted; zeros without a GPU
void restart_product_tuning();     // the counts, not the choices
void set_product_tuning(bool on);  // off: the library's first guess is taken, and nothing timed
bool product_tuning_is_on();

void leave_gpu();  // gives back what this process holds there, which must not be used any more

// Host memory that the GPU copies from and to without a detour; null when there is not enough, or no GPU.
void* allocate_pinned(size_t bytes);
void free_pinned(void* p);

}  // namespace sinter
