// What a measurement ran on.
#pragma once
#include <string>
#include <vector>

#include "core/device.h"
#include "lab/json.h"

namespace sinter::lab {

struct BuildInfo {
  std::string version, commit, type, compiler, cuda, cuda_reason;
  std::string source_dir, install_peers;  // where peers' scripts lie: in the source tree, or below the prefix
};
const BuildInfo& build_info();

std::string cuda_version_text(int version);                   // 13000 -> "13.0"
Json machine_block(DeviceType device);                        // no host name: records are for showing to others
std::vector<std::string> machine_lines(const Json& machine);  // for people
std::string now_text();                                       // 2026-01-31T12:00:00Z

}  // namespace sinter::lab
