// Inside the CUDA backend: error checks and facts about the device. Compiled by g++ and by nvcc.
#pragma once
#include <cuda_runtime_api.h>
#include <string>

#include "core/error.h"
#include "core/kernel_call.h"

namespace sinter::cuda {

// Throws sinter::Error naming the call and CUDA's error; out of memory has its own kind. Clears the sticky flag.
[[noreturn]] void fail_cuda(cudaError_t error, const char* what);
inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) [[unlikely]]
    fail_cuda(error, what);
}

[[noreturn]] void refuse(const char* kernel, const std::string& why);

inline cudaStream_t stream_of(const KernelCall& call) { return static_cast<cudaStream_t>(call.stream); }

int multiprocessors();        // of the current device
cudaError_t probe_kernels();  // whether the kernels in this binary can run on the current device (fill.cu)

#define KERNEL(name) void name(const KernelCall& call);
#include "backend/kernels.def"
#undef KERNEL

}  // namespace sinter::cuda
