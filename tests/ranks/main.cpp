// A GoogleTest program that is started once for each rank: sinter launch -n 3 -- sinter_rank_tests.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "dist/group.h"
#include "ops/context.h"
#include "ranks/world.h"

namespace sinter {
namespace {
dist::World* world = nullptr;
}

dist::World& test_world() { return *world; }

DeviceType test_device() {
  static const DeviceType device = [] {
    const char* name = std::getenv("SINTER_TEST_DEVICE");
    return name && std::string(name) == "cuda" ? DeviceType::cuda : DeviceType::cpu;
  }();
  return device;
}

std::unique_ptr<ProcessGroup> test_group(const std::string& backend, const std::vector<int>& ranks,
                                         bool deterministic) {
  return test_world().make_group(backend, ranks, deterministic, test_device());
}

void wait_for(ProcessGroup& group, double seconds) {
  if (test_device() == DeviceType::cpu) return;
  synchronize(test_device());
  for (int64_t begin = steady_ns(); double(steady_ns() - begin) / 1e9 < seconds; usleep(1000)) group.throw_if_failed();
}

std::vector<std::string> test_backends() {
  if (test_device() == DeviceType::cuda) {
    if (test_world().hosts() > 1) return {"hosts"};
    return dist::nccl_missing_reason().empty() ? std::vector<std::string>{"ipc", "nccl", "shm"}
                                               : std::vector<std::string>{"ipc", "shm"};
  }
  if (test_world().hosts() > 1) return {"hosts", "gloo"};
  return dist::has_gloo() ? std::vector<std::string>{"shm", "gloo"} : std::vector<std::string>{"shm"};
}

}  // namespace sinter

// A rank that has failed a test ends, and takes the others with it: they would wait for it.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    auto me = sinter::dist::rank_from(sinter::dist::process_environment());
    if (!me) {
      std::puts("no ranks here: start this with sinter launch -n 2 -- sinter_rank_tests");
      return 2;
    }
    // Ranks other than 0 speak up only when something fails.
    if (me->rank > 0) {
      auto& listeners = testing::UnitTest::GetInstance()->listeners();
      class Failures : public testing::EmptyTestEventListener {
        void OnTestPartResult(const testing::TestPartResult& r) override {
          if (r.failed()) std::printf("%s:%d: %s\n", r.file_name(), r.line_number(), r.summary());
        }
      };
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new Failures);
    }
    if (sinter::test_device() == sinter::DeviceType::cuda) sinter::prefer_gpu(me->local_rank);
    sinter::dist::World w(*me, {.timeout_s = 60, .check_collectives = true});
    sinter::world = &w;
    return RUN_ALL_TESTS();
  } catch (const sinter::Error& e) {
    std::fprintf(stderr, "sinter_rank_tests: %s\n", e.what());
    return int(e.kind());
  }
}
