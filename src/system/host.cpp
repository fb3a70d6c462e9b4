#include "system/host.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sys/utsname.h>

namespace sinter {

std::string now_text() {
  std::time_t t = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm utc{};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
  return text;
}

double cpu_mhz() {
  std::ifstream in("/proc/cpuinfo");
  double fastest = 0;
  for (std::string line; std::getline(in, line);)
    if (line.rfind("cpu MHz", 0) == 0) fastest = std::max(fastest, std::atof(line.substr(line.find(':') + 1).c_str()));
  return fastest;
}

std::string os_text() {
  utsname os{};
  uname(&os);
  return std::string(os.sysname) + " " + os.release;
}

}  // namespace sinter
