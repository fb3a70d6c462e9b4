// Ranges for nsys and ncu. Header-only; tools make themselves known by an environment variable.
#include <cstdlib>
#include <nvtx3/nvToolsExt.h>

#include "backend/activity_recorder.h"

namespace sinter {

bool nvtx_tool_attached() { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; }

static nvtxDomainHandle_t nvtx_domain() {
  static nvtxDomainHandle_t domain = nvtxDomainCreateA("sinter");
  return domain;
}
void nvtx_push(const char* name) {
  nvtxEventAttributes_t e{};
  e.version = NVTX_VERSION;
  e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  e.messageType = NVTX_MESSAGE_TYPE_ASCII;
  e.message.ascii = name;
  nvtxDomainRangePushEx(nvtx_domain(), &e);
}
void nvtx_pop() { nvtxDomainRangePop(nvtx_domain()); }

}  // namespace sinter
