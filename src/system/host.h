// Facts about the host and the moment. A container counts as the host: what it does not let us use is not there.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace sinter {

int host_cores();             // of the affinity mask, limited by the CPU quota; at least 1
int64_t host_memory_bytes();  // in all, limited by the memory cgroup
int64_t host_free_bytes();    // available now, limited by what the memory cgroup has left
std::string cpu_model();      // from /proc/cpuinfo
double cpu_mhz();             // the fastest core's clock now; 0 where the kernel does not say
std::string os_text();        // "Linux 6.1.0"
// 2026-01-31T12:00:00Z: now, or a while ago. Of two such texts the later moment's is the greater.
std::string now_text(int64_t seconds_ago = 0);

// What the cgroups that this process is in allow, version 1 or 2. `root` is for tests: where /proc and /sys lie.
struct GroupLimits {
  double cores = std::numeric_limits<double>::infinity();
  int64_t memory_bytes = std::numeric_limits<int64_t>::max(), memory_left = memory_bytes;
};
GroupLimits group_limits(const std::string& root = "");

}  // namespace sinter
