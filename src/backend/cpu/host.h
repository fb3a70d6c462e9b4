// What the machine (or the container we are in) lets us use.
#pragma once
#include <cstdint>
#include <string>

namespace sinter::cpu {

int default_threads();        // SINTER_THREADS, else affinity limited by the CPU quota
std::string cpu_model();      // from /proc/cpuinfo
int64_t host_memory_bytes();  // in all, limited by the memory cgroup
int64_t host_free_bytes();    // available now, limited by what the memory cgroup has left

}  // namespace sinter::cpu
