// What a device did and when: kernels, copies and fills, and the calls into the runtime that asked for them. The CUDA
// backend fills it from CUPTI, the profiler from device events or, on the CPU, from the clock around each op.
#pragma once
#include <cstdint>
#include <string>

namespace sinter {

struct Activity {
  enum Kind : uint8_t { kernel, copy, fill, runtime_call, communication };
  Kind kind = kernel;
  std::string name;  // a kernel's as compiled (demangled); "Memcpy DtoD (Device -> Device)"; "cudaLaunchKernel_v7000"
  int64_t begin_ns = 0, end_ns = 0;  // the host's steady clock
  uint32_t range = 0;                // id of the range that launched it; 0: none
  uint32_t correlation = 0;          // the same for a runtime call and what it launched; 0: none
  int device = 0, stream = 0;        // of what ran on the device; ids as the driver counts, 0: not known
  int64_t thread = 0;                // of a runtime call
  int64_t bytes = 0;                 // copies and fills
  int grid[3] = {}, block[3] = {};   // kernels, where known
  int registers = 0, shared_bytes = 0;

  int64_t duration_ns() const { return end_ns - begin_ns; }
};

}  // namespace sinter
