// Facts about the host and the moment.
#pragma once
#include <string>

namespace sinter {

std::string now_text();  // 2026-01-31T12:00:00Z
std::string os_text();   // "Linux 6.1.0"
double cpu_mhz();        // the fastest core's clock now; 0 where the kernel does not say

}  // namespace sinter
