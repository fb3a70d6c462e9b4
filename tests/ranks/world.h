// The ranks that a test of ranks runs on: every rank runs every test, in the same order.
#pragma once
#include "dist/world.h"

namespace sinter {

dist::World& test_world();
// shm, and gloo where the build has it.
std::vector<std::string> test_backends();

}  // namespace sinter
