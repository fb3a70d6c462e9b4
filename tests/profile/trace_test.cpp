#include "profile/trace.h"

#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

namespace sinter {
namespace {

Activity ran(Activity::Kind kind, const char* name, int64_t begin, int64_t end) {
  Activity a;
  a.kind = kind, a.name = name, a.begin_ns = begin, a.end_ns = end;
  return a;
}
Activity kernel(const char* name, int64_t begin, int64_t end) { return ran(Activity::kernel, name, begin, end); }

TEST(RangeRecorder, KeepsWhatWasLeftInItsOrder) {
  std::vector<RangeSpan> spans;
  std::vector<std::string> names;
  {
    Range before("before");
    RangeRecorder recorder;
    {
      Range outer("outer");
      { Range inner("inner", RangeKind::op); }
      std::thread([] { Range elsewhere("elsewhere"); }).join();
    }
    Range open("open");
    spans = recorder.take();
    EXPECT_TRUE(recorder.take().empty());
  }
  for (const RangeSpan& s : spans) names.push_back(range_of(s.range).name);
  ASSERT_EQ(names, (std::vector<std::string>{"inner", "elsewhere", "outer"}));
  EXPECT_LE(spans[2].begin_ns, spans[0].begin_ns);
  EXPECT_LE(spans[0].end_ns, spans[1].begin_ns);
  EXPECT_LE(spans[1].end_ns, spans[2].end_ns);
  EXPECT_EQ(spans[0].thread, gettid());
  EXPECT_EQ(spans[2].thread, gettid());
  EXPECT_NE(spans[1].thread, gettid());
}

TEST(RangeRecorder, IgnoresTheEndOfWhatItDidNotSeeBegin) {
  auto before = std::make_unique<Range>("before");
  RangeRecorder recorder;
  before.reset();
  { Range after("after"); }
  std::vector<RangeSpan> spans = recorder.take();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(range_of(spans[0].range).name, "after");
}

TEST(RangeRecorder, ThreadsDoNotDisturbEachOther) {
  RangeRecorder recorder;
  auto work = [] {
    for (int i = 0; i < 2000; ++i) {
      Range a("a");
      Range b("b");
    }
  };
  Range outer("outer");
  std::thread one(work), two(work);
  work();
  one.join(), two.join();
  std::vector<RangeSpan> spans = recorder.take();
  EXPECT_EQ(spans.size(), 12000u);
  for (const RangeSpan& s : spans) ASSERT_LE(s.begin_ns, s.end_ns);
}

TEST(DeviceTime, OverlappingKernelsCountOnce) {
  // ....AAAA....CCC.DD
  // ......BBBB........
  DeviceTime t = device_time({kernel("C", 120, 150), kernel("A", 40, 80), kernel("B", 60, 100), kernel("D", 160, 180)});
  EXPECT_EQ(t.span_ns, 140);
  EXPECT_EQ(t.busy_ns, 110);
  EXPECT_EQ(t.gap_ns, 30);
  EXPECT_EQ(t.gaps, 2);
  EXPECT_EQ(t.longest_gap_ns, 20);
  EXPECT_EQ(device_time({}).span_ns, 0);
  EXPECT_EQ(device_time({kernel("A", 10, 20), kernel("B", 20, 30)}).gaps, 0) << "back to back";
  EXPECT_EQ(device_time({kernel("A", 10, 50), kernel("B", 20, 30), kernel("C", 45, 60)}).busy_ns, 50) << "one inside";
}

TEST(CommunicationOverlap, NamesAreHtas) {
  EXPECT_TRUE(
      is_communication(kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 1)));
  EXPECT_TRUE(is_communication(kernel("ncclKernel_AllGather", 0, 1)));
  EXPECT_TRUE(is_communication(kernel("sinter_all_reduce[ncclKernel]", 0, 1)));
  EXPECT_FALSE(is_communication(kernel("sinter_all_reduce", 0, 1)));
  EXPECT_FALSE(is_communication(kernel("void my_nccl_like()", 0, 1)));
  Activity ours = kernel("all_reduce", 0, 1);
  ours.kind = Activity::communication;
  EXPECT_TRUE(is_communication(ours));
}

TEST(CommunicationOverlap, IsTheTimeInWhichBothRun) {
  // nccl    AAAAAAAA......AA....   0–80, 140–160
  // compute ....BB.CC..DDDDDDDDD   40–60, 70–90, 110–200
  // memory  MMMMMMMMMMMMMMMMMMMM   neither
  std::vector<Activity> all = {kernel("ncclDevKernel_x", 0, 80),
                               kernel("B", 40, 60),
                               kernel("C", 70, 90),
                               kernel("D", 110, 200),
                               kernel("ncclKernel_y", 140, 160),
                               ran(Activity::copy, "Memcpy DtoD", 0, 200),
                               ran(Activity::fill, "Memset", 0, 200)};
  Overlap o = communication_overlap(all);
  EXPECT_EQ(o.communication_ns, 100);
  EXPECT_EQ(o.overlapped_ns, 20 + 10 + 20);
  // Two communication kernels at once, two compute kernels at once: still the time in which both kinds run.
  o = communication_overlap(
      {kernel("nccl1", 0, 50), kernel("nccl2", 20, 60), kernel("a", 30, 70), kernel("b", 40, 100)});
  EXPECT_EQ(o.communication_ns, 60);
  EXPECT_EQ(o.overlapped_ns, 30);
  o = communication_overlap({kernel("a", 30, 70)});
  EXPECT_EQ(o.communication_ns, 0);
  EXPECT_EQ(o.overlapped_ns, 0);
}

}  // namespace
}  // namespace sinter
