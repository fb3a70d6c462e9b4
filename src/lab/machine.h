// What a measurement ran on.
#pragma once
#include <string>
#include <vector>

#include "core/device.h"
#include "system/json.h"

namespace sinter::lab {

std::string cuda_version_text(int version);                   // 13000 -> "13.0"
Json machine_block(DeviceType device);                        // no host name: records are for showing to others
std::vector<std::string> machine_lines(const Json& machine);  // for people

}  // namespace sinter::lab
