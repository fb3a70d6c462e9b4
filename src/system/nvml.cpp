#include "system/nvml.h"

#include <dlfcn.h>

namespace sinter {
namespace {

// The few declarations of nvml.h that are needed, so that it is not: the library comes with the driver, not the
// toolkit.
using Device = void*;
enum : unsigned { clock_sm = 1, clock_memory = 2, temperature_gpu = 0 };

struct Nvml {
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
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
    load(by_uuid, "nvmlDeviceGetHandleByUUID");
    load(clock, "nvmlDeviceGetClockInfo");
    load(max_clock, "nvmlDeviceGetMaxClockInfo");
    load(power, "nvmlDeviceGetPowerUsage");
    load(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    load(temperature, "nvmlDeviceGetTemperature");
    load(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    ok = init && init() == 0;
  }

  Device find(const std::string& uuid) const {
    Device d = nullptr;
    return ok && by_uuid && by_uuid(uuid.c_str(), &d) == 0 ? d : nullptr;
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

Json gpu_clocks(const std::string& uuid) {
  Json j = Json::object();
  const Nvml& n = nvml();
  Device d = n.find(uuid);
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
