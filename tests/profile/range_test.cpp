#include "profile/range.h"

#include <functional>
#include <thread>

#include "support/values.h"

namespace sinter {
namespace {

TEST(Ranges, NestAndUnwind) {
  EXPECT_EQ(Range::path(), "");
  {
    Range step("step"), layer(std::string("layers.") + "7");
    EXPECT_EQ(Range::path(), "step/layers.7");
    try {
      Range inner("attn");
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(Range::path(), "step/layers.7");
  }
  EXPECT_EQ(Range::path(), "");
}

TEST(Ranges, BelongToTheirThread) {
  Range outer("outer");
  std::thread([] { EXPECT_EQ(Range::path(), ""); }).join();
}

TEST(Ranges, TooDeepStillUnwinds) {
  std::function<void(int)> nest = [&](int depth) {
    if (depth == 0) return;
    Range r("x");
    nest(depth - 1);
  };
  nest(100);
  Range after("after");
  EXPECT_EQ(Range::path(), "after");
}

TEST(Ranges, ErrorsSayWhere) {
  Range forward("forward"), layer("layers.3");
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { check(false, "no such thing as {}", 42); }),
                       {"no such thing as 42", "(in forward/layers.3)"}));
}

}  // namespace
}  // namespace sinter
