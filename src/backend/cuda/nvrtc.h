// CUDA C++ text to machine code, by NVRTC and by a cache on disk. The library is loaded when the first text comes: a
// machine without it runs everything else.
#pragma once
#include <string>
#include <vector>

namespace sinter::cuda {

std::string architecture_of(int compute_capability);  // 90: "sm_90a"

// The machine code (cubin). A text that does not compile is a bug of ours: the error holds NVRTC's log.
std::string compile_cubin(const std::string& source, const std::string& architecture);
// The same for many: from the cache where it has them, otherwise compiled, several at a time, and put there.
std::vector<std::string> find_or_compile_cubins(const std::vector<std::string>& sources,
                                                const std::string& architecture);

}  // namespace sinter::cuda
