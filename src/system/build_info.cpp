#include "system/build_info.h"

#include "sinter_build_info.h"

namespace sinter {

const BuildInfo& build_info() {
  static const BuildInfo info{SINTER_BUILD_VERSION,    SINTER_BUILD_COMMIT, SINTER_BUILD_TYPE,
                              SINTER_BUILD_COMPILER,   SINTER_BUILD_CUDA,   SINTER_BUILD_CUDA_WHY,
                              SINTER_BUILD_SOURCE_DIR, SINTER_INSTALL_PEERS};
  return info;
}

}  // namespace sinter
