// In builds without gloo, instead of gloo_group.cpp.
#include "core/check.h"
#include "dist/group.h"

namespace sinter::dist {

bool has_gloo() { return false; }

std::unique_ptr<ProcessGroup> make_gloo_group(GroupSetting) {
  fail(ErrorKind::usage, "this build has no gloo; install libgloo-dev and build again, or use --backend shm");
}

}  // namespace sinter::dist
