// A GPU's clocks, power and throttling, from NVIDIA's management library if the driver brought one.
#pragma once
#include <optional>
#include <string>

#include "system/json.h"

namespace sinter {

std::optional<std::string> nvml_driver_version();  // none without the library
// {"sm_mhz", "memory_mhz", "sm_max_mhz", "memory_max_mhz", "power_w", "power_limit_w", "temperature_c", "throttle":
// […]}; what is unknown is left out. Without the library, or for a part of a GPU (MIG), which has no clocks of its own,
// the object is empty.
Json gpu_clocks(
    const std::string& uuid);  // "GPU-…", as DeviceInfo has it: ordinals differ between this library and CUDA

}  // namespace sinter
