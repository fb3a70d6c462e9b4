#include "core/range.h"

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

TEST(Ranges, DeepOnesUnwind) {
  std::function<void(int)> nest = [&](int depth) {
    if (depth == 0) return;
    Range r("x");
    nest(depth - 1);
  };
  nest(100);
  Range after("after");
  EXPECT_EQ(Range::path(), "after");
}

TEST(Ranges, AreTheSamePlaceEachTime) {
  auto id = [] {
    Range step("the step"), forward("forward", RangeKind::phase), layer("layers.7");
    return Range::current().id;
  };
  EXPECT_EQ(id(), id());
  const RangeNode& n = range_of(id());
  EXPECT_EQ(n.path(), "the step/forward/layers.7");
  EXPECT_EQ(n.phase()->name, "forward");
  EXPECT_NE(std::string(n.where.file).find("range_test.cpp"), std::string::npos);
}

// Records what a listener hears as "+name" and "-name".
struct Heard : RangeListener {
  std::string text;
  void entered(const RangeNode& r) override { text += "+" + r.name + " "; }
  void left(const RangeNode& r) override { text += "-" + r.name + " "; }
};

TEST(Ranges, BackwardFollowsTheModulesOfForward) {
  const RangeNode *a, *b;
  {
    Range step("step"), forward("forward", RangeKind::phase), layer("layers.7");
    {
      Range attn("attn"), op("softmax", RangeKind::op);
      a = &Range::current();
    }
    Range ffn("ffn"), op("linear", RangeKind::op);
    b = &Range::current();
  }
  Range step("step"), backward("backward", RangeKind::phase);
  Heard heard;
  {
    RangeFollower place;
    place.follow(*b);
    EXPECT_EQ(Range::path(), "step/backward/layers.7/ffn");
    place.follow(*a);
    EXPECT_EQ(Range::path(), "step/backward/layers.7/attn");
    place.follow(*a);
  }
  EXPECT_EQ(Range::path(), "step/backward");
  EXPECT_EQ(heard.text, "+layers.7 +ffn -ffn +attn -attn -layers.7 ") << "what is common is not left";
}

TEST(Ranges, ErrorsSayWhere) {
  Range forward("forward"), layer("layers.3");
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { check(false, "no such thing as {}", 42); }),
                       {"no such thing as 42", "(in forward/layers.3)"}));
}

}  // namespace
}  // namespace sinter
