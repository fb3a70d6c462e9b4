// What this program was built from, and with what.
#pragma once
#include <string>

namespace sinter {

struct BuildInfo {
  std::string version, commit, type, compiler, cuda, cuda_reason;
  std::string source_dir, install_peers;  // where peers' scripts lie: in the source tree, or below the prefix
};
const BuildInfo& build_info();

}  // namespace sinter
