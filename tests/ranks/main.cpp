// A GoogleTest program that is started once for each rank: sinter launch -n 3 -- sinter_rank_tests.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "core/error.h"
#include "dist/group.h"
#include "ranks/world.h"

namespace sinter {
namespace {
dist::World* world = nullptr;
}

dist::World& test_world() { return *world; }

std::vector<std::string> test_backends() {
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
    sinter::dist::World w(*me, {.timeout_s = 60, .check_collectives = true});
    sinter::world = &w;
    return RUN_ALL_TESTS();
  } catch (const sinter::Error& e) {
    std::fprintf(stderr, "sinter_rank_tests: %s\n", e.what());
    return int(e.kind());
  }
}
