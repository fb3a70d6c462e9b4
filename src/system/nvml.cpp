#include "system/nvml.h"

#include <cstdlib>
#include <dlfcn.h>

namespace sinter {
namespace {

// The few declarations of nvml.h that are needed, so that it is not: the library comes with the driver, not the toolkit.
using Device = void*;
enum : unsigned { clock_sm = 1, clock_memory = 2, temperature_gpu = 0 };

struct Nvml {
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*clock)(Device, unsigned, unsigned*) = nullptr;
  int (*max_clock)(Device, unsigned, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*power_limit)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, unsigned, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
  bool ok = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    auto load = [library](auto& f, const char* symbol) {
      f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(library, symbol));
    };
    load(init, "nvmlInit_v2");
    load(driver_version, "nvmlSystemGetDriverVersion");
    load(count, "nvmlDeviceGetCount_v2");
    load(by_index, "nvmlDeviceGetHandleByIndex_v2");
    load(by_uuid, "nvmlDeviceGetHandleByUUID");
    load(name, "nvmlDeviceGetName");
    load(clock, "nvmlDeviceGetClockInfo");
    load(max_clock, "nvmlDeviceGetMaxClockInfo");
    load(power, "nvmlDeviceGetPowerUsage");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(temperature, "nvmlDeviceGetTemperature");
    load(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    ok = init && init() == 0;
  }

  std::string name_of(Device d) const {
    char text[128] = {};
    return name && name(d, text, sizeof text) == 0 ? text : "";
  }

  // The first GPU the process may see. The library ignores CUDA_VISIBLE_DEVICES and counts in bus order, so the name is
  // checked and the first GPU of that name taken if it differs.
  Device find(const std::string& device_name) const {
    if (!ok || !by_index) return nullptr;
    Device d = nullptr;
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string first = visible ? std::string(visible).substr(0, std::string(visible).find(',')) : "0";
    if (first.rfind("GPU-", 0) == 0 && by_uuid && by_uuid(first.c_str(), &d) == 0) return d;
    if (by_index(unsigned(std::atoi(first.c_str())), &d) == 0 && name_of(d) == device_name) return d;
    unsigned n = 0;
    if (count && count(&n) == 0)
      for (unsigned i = 0; i < n; ++i)
        if (by_index(i, &d) == 0 && name_of(d) == device_name) return d;
    return nullptr;
  }
};

const Nvml& nvml() {
  static const Nvml n;
  return n;
}

}  // namespace

std::optional<std::string> nvml_driver_version() {
  char text[96] = {};
  if (!nvml().ok || !nvml().driver_version || nvml().driver_version(text, sizeof text) != 0) return {};
  return text;
}

Json gpu_clocks(const std::string& device_name) {
  Json j = Json::object();
  const Nvml& n = nvml();
  Device d = n.find(device_name);
  if (!d) return j;
  unsigned v = 0;
  if (n.clock && n.clock(d, clock_sm, &v) == 0) j["sm_mhz"] = v;
  if (n.clock && n.clock(d, clock_memory, &v) == 0) j["memory_mhz"] = v;
  if (n.max_clock && n.max_clock(d, clock_sm, &v) == 0) j["sm_max_mhz"] = v;
  if (n.max_clock && n.max_clock(d, clock_memory, &v) == 0) j["memory_max_mhz"] = v;
  if (n.power && n.power(d, &v) == 0) j["power_w"] = v / 1000;
  if (n.power_limit && n.power_limit(d, &v) == 0) j["power_limit_w"] = v / 1000;
  if (n.temperature && n.temperature(d, temperature_gpu, &v) == 0) j["temperature_c"] = v;
  unsigned long long reasons = 0;
  if (n.throttle && n.throttle(d, &reasons) == 0) {
    static const std::pair<unsigned long long, const char*> names[] = {{0x2, "application clocks"},
                                                                       {0x4, "power cap"},
                                                                       {0x8, "hardware slowdown"},
                                                                       {0x10, "sync boost"},
                                                                       {0x20, "temperature (software)"},
                                                                       {0x40, "temperature (hardware)"},
                                                                       {0x80, "power brake"}};
    j["throttle"] = Json::array();
    for (auto [bit, name] : names)
      if (reasons & bit) j["throttle"].push_back(name);
  }
  return j;
}

}  // namespace sinter
