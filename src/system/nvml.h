// A GPU's clocks, power and throttling, from NVIDIA's management library if the driver brought one.
#pragma once
#include <optional>
#include <string>

#include "system/json.h"

namespace sinter {

std::optional<std::string> nvml_driver_version();  // none without the library
// {"sm_mhz", "memory_mhz", "sm_max_mhz", "memory_max_mhz", "power_w", "power_limit_w", "temperature_c", "throttle": […]}; what is
// unknown is left out, and without the library the object is empty.
Json gpu_clocks(const std::string& device_name);

}  // namespace sinter
