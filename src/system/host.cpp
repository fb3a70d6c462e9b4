#include "system/host.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sched.h>
#include <sstream>
#include <sys/utsname.h>

namespace sinter {
namespace {

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// "max" and v1's huge numbers both mean no limit.
std::optional<int64_t> read_number(const std::string& path) {
  auto line = read_line(path);
  if (!line || line->empty() || !std::isdigit(static_cast<unsigned char>((*line)[0]))) return std::nullopt;
  return int64_t(std::strtoull(line->c_str(), nullptr, 10) & uint64_t(std::numeric_limits<int64_t>::max()));
}

// The value after "key" in a file of "key: value" or "key value" lines, in its own units.
std::optional<std::string> value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    size_t at = line.find_first_not_of(" \t:", key.size());
    if (at != std::string::npos) return line.substr(at);
  }
  return std::nullopt;
}

// Our cgroup in the hierarchy of a controller; v2 has a single one, without a name.
std::string own_group(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/a/b", or "0::/a/b" for v2
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::stringstream names(line.substr(first + 1, second - first - 1));
    if (controller.empty() && second == first + 1) return line.substr(second + 1);
    for (std::string name; std::getline(names, name, ',');)
      if (!controller.empty() && name == controller) return line.substr(second + 1);
  }
  return "/";
}

// The folders that may limit us, from our own cgroup to the root of its hierarchy. Inside a container the path in
// /proc/self/cgroup may lie outside what is mounted, so the root counts too.
template <class F> void for_each_group(const std::string& root, const std::string& controller, const F& f) {
  std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::string path = own_group(root, controller);
  while (path.size() > 1) {
    f(mount + path);
    size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
  f(mount);
}

int64_t meminfo(const char* key) {
  auto value = value_of("/proc/meminfo", key);
  return value ? 1024 * std::strtoll(value->c_str(), nullptr, 10) : 0;
}

}  // namespace

GroupLimits group_limits(const std::string& root) {
  GroupLimits l;
  for_each_group(root, "", [&](const std::string& group) {  // "max 100000" or "150000 100000"
    auto line = read_line(group + "/cpu.max");
    if (!line) return;
    std::stringstream words(*line);
    double limit = 0, period = 0;
    if (words >> limit >> period && period > 0) l.cores = std::min(l.cores, limit / period);
  });
  for_each_group(root, "cpu", [&](const std::string& group) {
    auto limit = read_number(group + "/cpu.cfs_quota_us"), period = read_number(group + "/cpu.cfs_period_us");
    if (limit && period && *limit > 0 && *period > 0) l.cores = std::min(l.cores, double(*limit) / double(*period));
  });
  // Page cache counts as usage but is given back on demand.
  auto look = [&](const std::string& group, const char* limit_file, const char* usage_file, const char* cache_key) {
    auto limit = read_number(group + limit_file), usage = read_number(group + usage_file);
    if (!limit || !usage) return;
    auto cache = value_of(group + "/memory.stat", cache_key);
    int64_t used = *usage - (cache ? std::strtoll(cache->c_str(), nullptr, 10) : 0);
    l.memory_bytes = std::min(l.memory_bytes, *limit);
    l.memory_left = std::min(l.memory_left, std::max<int64_t>(0, *limit - std::max<int64_t>(0, used)));
  };
  for_each_group(root, "", [&](const std::string& g) { look(g, "/memory.max", "/memory.current", "inactive_file"); });
  for_each_group(root, "memory", [&](const std::string& g) {
    look(g, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  });
  return l;
}

int host_cores() {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  double quota = group_limits().cores;
  if (quota < n) n = int(std::ceil(quota));
  return std::max(1, n);
}

int64_t host_memory_bytes() { return std::min(meminfo("MemTotal"), group_limits().memory_bytes); }
int64_t host_free_bytes() { return std::min(meminfo("MemAvailable"), group_limits().memory_left); }

std::string cpu_model() { return value_of("/proc/cpuinfo", "model name").value_or("unknown CPU"); }

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

std::string now_text(int64_t seconds_ago) {
  auto moment = std::chrono::system_clock::now() - std::chrono::seconds(seconds_ago);
  std::time_t t = std::chrono::system_clock::to_time_t(moment);
  char text[32];
  std::tm utc{};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
  return text;
}

}  // namespace sinter
