// The ranks that a test of ranks runs on: every rank runs every test, in the same order.
#pragma once
#include "dist/world.h"

namespace sinter {

dist::World& test_world();
// Where the numbers lie: on GPUs with SINTER_TEST_DEVICE=cuda.
DeviceType test_device();
// shm, and gloo where the build has it; on GPUs ipc and nccl. The first adds in the order of ranks.
std::vector<std::string> test_backends();
std::unique_ptr<ProcessGroup> test_group(const std::string& backend = test_backends()[0],
                                         const std::vector<int>& ranks = {}, bool deterministic = false);
// What one rank does wrong is known once the device has come so far.
void wait_for(ProcessGroup& group, double seconds = 10);

}  // namespace sinter
