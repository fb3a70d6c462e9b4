// Note [One GPU] in backend/device.h. Whether an ordinal exists is only known where there are GPUs;
// the rest is the same everywhere.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/device.h"
#include "core/error.h"

namespace sinter {
namespace {

bool chosen(int ordinal) {
  try {
    choose_gpu(ordinal);
    return true;
  } catch (const Error& e) {
    return e.kind() != ErrorKind::usage;
  }
}

// In a child: the choice is the process's. Where an earlier test used a GPU, it inherits that this one is settled.
TEST(OneDevice, UntilItIsUsed) {
  pid_t child = fork();
  if (child == 0) {
    int settled = settle_gpu(5, 8);
    bool good = settle_gpu(6, 8) == settled && chosen(settled) && !chosen(settled + 1);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(OneDevice, TheLastChoiceCounts) {
  constexpr int refused = 2;
  pid_t child = fork();
  if (child == 0) {
    if (!chosen(7)) _exit(refused);
    _exit(chosen(3) && settle_gpu(0, 8) == 3 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  // A test before this one may have used a GPU, which then is this process's; without one nothing may refuse.
  if (WEXITSTATUS(status) == refused && cuda_backend()) GTEST_SKIP() << "SKIPPED: this process uses a GPU already";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sinter
