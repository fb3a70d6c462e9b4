#include "memory/caching_allocator.h"

#include <cmath>
#include <map>

#include "core/range.h"
#include "ops/context.h"
#include "support/values.h"

namespace sinter {
namespace {

constexpr int64_t mib = 1 << 20;

// Memory that is never touched: an address space with a limit.
struct FakeDevice {
  int64_t limit = 1 << 30, used = 0;
  uint64_t next = uint64_t(1) << 40;
  int synchronized = 0;
  std::map<void*, int64_t> segments;
  CachingAllocator allocator{"fake", source()};

  // Whatever a test did, all memory comes back once nothing is in use.
  ~FakeDevice() {
    allocator.release_cached();
    EXPECT_EQ(used, 0);
  }

  CachingAllocator::Source source() {
    return {[this](size_t n) -> void* {
              if (used + int64_t(n) > limit) return nullptr;
              void* p = reinterpret_cast<void*>(next);
              next += (n + 4095) / 4096 * 4096 + 4096;
              segments[p] = int64_t(n);
              used += int64_t(n);
              return p;
            },
            [this](void* p) {
              EXPECT_EQ(segments.count(p), 1u);
              used -= segments[p];
              segments.erase(p);
            },
            [this] { return limit - used; }, [this] { ++synchronized; }, [](void*, size_t, void*) {}};
  }
};

TEST(CachingAllocator, ReusesWhatWasFreed) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  auto x = a.allocate(1000, nullptr);
  a.release(x.token);
  auto y = a.allocate(900, nullptr);
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(device.segments.size(), 1u);
  a.release(y.token);
}

TEST(CachingAllocator, SmallRequestsShareASegment) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  std::vector<Allocator::Allocation> all;
  for (int i = 0; i < 100; ++i) all.push_back(a.allocate(10000, nullptr));
  EXPECT_EQ(device.segments.size(), 1u);
  EXPECT_EQ(a.stats().allocated, 100 * CachingAllocator::rounded(10000));
  EXPECT_EQ(a.stats().reserved, 2 * mib);
  for (auto& x : all) a.release(x.token);
}

TEST(CachingAllocator, StreamsDoNotShare) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  int s1, s2;
  auto x = a.allocate(4 * mib, &s1);
  a.release(x.token);
  auto y = a.allocate(4 * mib, &s2);
  EXPECT_NE(x.data, y.data) << "kernels queued on the first stream may still use it";
  auto z = a.allocate(4 * mib, &s1);
  EXPECT_EQ(x.data, z.data);
  a.release(y.token), a.release(z.token);
}

TEST(CachingAllocator, PeakAndWhoHeldIt) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  Allocator::Allocation w, x;
  {
    CategoryScope scope(MemoryCategory::parameter);
    w = a.allocate(4 * mib, nullptr);
  }
  x = a.allocate(2 * mib, nullptr);  // an activation, unless someone says otherwise
  a.release(x.token);
  MemoryStats s = a.stats();
  EXPECT_EQ(s.allocated, 4 * mib);
  EXPECT_EQ(s.peak_allocated, 6 * mib);
  EXPECT_EQ(s.at_peak_by[int(MemoryCategory::parameter)], 4 * mib);
  EXPECT_EQ(s.at_peak_by[int(MemoryCategory::activation)], 2 * mib);
  EXPECT_EQ(s.allocated_by[int(MemoryCategory::activation)], 0);
  a.reset_peak();
  EXPECT_EQ(a.stats().peak_allocated, 4 * mib);
  a.release(w.token);
}

TEST(CachingAllocator, OutOfMemoryNamesTheHolders) {
  FakeDevice device;
  device.limit = 64 * mib;
  CachingAllocator& a = device.allocator;
  Allocator::Allocation w;
  {
    Range culprit("backward/layers.3");
    CategoryScope scope(MemoryCategory::gradient);
    w = a.allocate(40 * mib, nullptr);
  }
  a.record_events(true);
  std::string message = error_of(ErrorKind::memory, [&] {
    Range victim("optimizer");
    a.allocate(32 * mib, nullptr);
  });
  EXPECT_TRUE(mentions(message, {"fake", "32 MiB", "24 MiB are free", "gradient 40 MiB", "--batch",
                                 "backward/layers.3 40 MiB", "(in optimizer)"}));
  auto events = a.take_events();
  a.record_events(false);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().action, MemoryEvent::out_of_memory);
  EXPECT_EQ(events.back().bytes, 32 * mib);
  EXPECT_EQ(int64_t(events.back().address), 24 * mib) << "what the device has free";
  auto x = a.allocate(20 * mib, nullptr);  // and it can go on
  a.release(x.token), a.release(w.token);
}

TEST(CachingAllocator, GivesCachedSegmentsBackBeforeItFails) {
  FakeDevice device;
  device.limit = 64 * mib;
  CachingAllocator& a = device.allocator;
  auto x = a.allocate(40 * mib, nullptr);
  a.release(x.token);
  auto y = a.allocate(50 * mib, nullptr);
  EXPECT_NE(y.data, nullptr);
  EXPECT_GE(device.synchronized, 1) << "not while the device may still use them";
  a.release(y.token);
  a.release_cached();
  EXPECT_EQ(device.used, 0);
  EXPECT_EQ(a.stats().reserved, 0);
}

TEST(CachingAllocator, TakesTheExactSizeWhenASegmentDoesNotFit) {
  FakeDevice device;
  device.limit = 8 * mib;
  CachingAllocator& a = device.allocator;
  auto x = a.allocate(5 * mib, nullptr);  // a 20 MiB segment would be the rule
  EXPECT_NE(x.data, nullptr);
  a.release(x.token);
}

TEST(CachingAllocator, ALimitIsLikeASmallerDevice) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  a.set_limit(64 * mib);
  EXPECT_EQ(a.free_bytes(), 64 * mib);
  auto most = a.allocate(60 * mib, nullptr);
  EXPECT_EQ(a.free_bytes(), 4 * mib);
  EXPECT_TRUE(mentions(error_of(ErrorKind::memory, [&] { a.allocate(5 * mib, nullptr); }),
                       {"more are needed", "are free of the", "that it may take (--memory-limit)"}));
  a.release(most.token);
  auto other = a.allocate(62 * mib, nullptr);  // in another segment: the first is given back
  a.release(other.token);
}

TEST(CachingAllocator, ADoubleFreeIsReportedAndHarmless) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  Allocator::Allocation x;
  {
    Range r("layers.1");
    x = a.allocate(3 * mib, nullptr);
  }
  {
    Range r("first");
    a.release(x.token);
  }
  MemoryStats before = a.stats();
  {
    Range r("second");
    a.release(x.token);
  }
  ASSERT_EQ(a.faults().size(), 1u);
  EXPECT_TRUE(mentions(a.faults()[0],
                       {"double free", "fake", "3 MiB", "allocated in layers.1", "freed in first", "again in second"}));
  EXPECT_EQ(a.stats().allocated, before.allocated);
  auto y = a.allocate(3 * mib, nullptr);
  EXPECT_EQ(a.stats().allocated, 3 * mib);
  a.release(y.token);
}

// Whatever addresses the device gives, the same program gets the same blocks: or a prediction could not be exact.
TEST(CachingAllocator, ChoicesDoNotDependOnAddresses) {
  auto run = [](bool descending) {
    int64_t next = int64_t(1) << 41;
    CachingAllocator a("fake", {[&](size_t n) {
                                  next += descending ? -int64_t(1) << 32 : int64_t(1) << 32;
                                  EXPECT_LT(n, size_t(1) << 32);
                                  return reinterpret_cast<void*>(next);
                                },
                                [](void*) {}, [] { return int64_t(1) << 40; }, [] {}, [](void*, size_t, void*) {}});
    Rng rng(7);
    std::vector<Allocator::Allocation> held;
    std::vector<int64_t> sizes;
    for (int i = 0; i < 3000; ++i) {
      if (held.size() > 20 && integer(rng, 0, 2)) {
        size_t k = size_t(integer(rng, 0, int64_t(held.size())));
        a.release(held[k].token);
        held.erase(held.begin() + long(k));
      } else {
        held.push_back(a.allocate(integer(rng, 1, 8) * 3 * mib + integer(rng, 0, 2) * 700000, nullptr));
      }
      sizes.push_back(a.stats().allocated);
      sizes.push_back(a.stats().reserved);
    }
    for (auto& h : held) a.release(h.token);
    return sizes;
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(CachingAllocator, SegmentsShowWhatIsHeldAndByWhom) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  auto x = a.allocate(700, nullptr);
  Allocator::Allocation y;
  {
    Range r("layers.2");
    y = a.allocate(5000, nullptr);
  }
  a.release(x.token);
  std::vector<SegmentState> segments = a.segments();
  ASSERT_EQ(segments.size(), 1u);
  uint64_t next = segments[0].address;
  int64_t used = 0;
  for (const BlockState& b : segments[0].blocks) {
    EXPECT_EQ(b.address, next);
    next += uint64_t(b.bytes);
    if (!b.used) continue;
    used += b.bytes;
    EXPECT_EQ(range_of(b.range).path(), "layers.2");
    EXPECT_EQ(b.requested, 5000);
  }
  EXPECT_EQ(next, segments[0].address + uint64_t(segments[0].bytes));
  EXPECT_EQ(used, a.stats().allocated);
  a.release(y.token);
}

TEST(CachingAllocator, EventsTellWhatHappenedWhere) {
  FakeDevice device;
  CachingAllocator& a = device.allocator;
  a.record_events(true);
  {
    Range outer("forward"), inner("layers.3");
    CategoryScope scope(MemoryCategory::workspace);
    a.release(a.allocate(3000, nullptr).token);
  }
  a.record_events(false);
  a.release(a.allocate(3000, nullptr).token);
  auto events = a.take_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].action, MemoryEvent::segment_alloc);
  EXPECT_EQ(events[1].action, MemoryEvent::alloc);
  EXPECT_EQ(events[2].action, MemoryEvent::free);
  EXPECT_EQ(range_of(events[1].range).path(), "forward/layers.3");
  EXPECT_EQ(events[1].bytes, 3072);
  EXPECT_EQ(events[1].category, MemoryCategory::workspace);
  EXPECT_EQ(events[1].address, events[2].address);
  EXPECT_LE(events[1].time_ns, events[2].time_ns);
  EXPECT_TRUE(a.take_events().empty());
}

// Random requests: nothing overlaps, the numbers add up, and at the end every segment is whole again.
TEST(CachingAllocator, RandomRequestsKeepItsPromises) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    FakeDevice device;
    device.limit = int64_t(1) << 36;
    CachingAllocator& a = device.allocator;
    Rng rng(seed);
    int streams[2];
    struct Held {
      Allocator::Allocation at;
      int64_t bytes;
      MemoryCategory category;
    };
    std::map<char*, Held> held;
    int64_t peak = 0, least = 0;
    for (int step = 0; step < 1500; ++step) {
      bool take = held.empty() || (held.size() < 60 && uniform(rng, 0, 1) < 0.52);
      if (take) {
        int64_t bytes = int64_t(std::exp(uniform(rng, 0, 17.5)));  // one byte to 40 MB, all scales alike
        auto category = MemoryCategory(integer(rng, 0, memory_category_count));
        CategoryScope scope(category);
        auto x = a.allocate(bytes, &streams[integer(rng, 0, 2)]);
        auto* p = static_cast<char*>(x.data);
        ASSERT_EQ(reinterpret_cast<uint64_t>(p) % 512, 0u);
        auto after = held.lower_bound(p);
        ASSERT_TRUE(after == held.end() || p + bytes <= after->first) << "seed " << seed;
        auto before = after == held.begin() ? held.end() : std::prev(after);
        ASSERT_TRUE(before == held.end() || before->first + before->second.bytes <= p) << "seed " << seed;
        auto segment = device.segments.upper_bound(p);
        ASSERT_NE(segment, device.segments.begin());
        --segment;
        ASSERT_LE(p + bytes, static_cast<char*>(segment->first) + segment->second) << "inside its segment";
        held[p] = {x, bytes, category};
        least += bytes;
      } else {
        auto it = std::next(held.begin(), integer(rng, 0, int64_t(held.size())));
        least -= it->second.bytes;
        a.release(it->second.at.token);
        held.erase(it);
      }
      MemoryStats s = a.stats();
      peak = std::max(peak, s.allocated);
      int64_t sum = 0;
      for (int64_t c : s.allocated_by) sum += c;
      ASSERT_EQ(sum, s.allocated);
      ASSERT_EQ(s.peak_allocated, peak);
      ASSERT_EQ(s.reserved, device.used);
      ASSERT_GE(s.allocated, least);
      ASSERT_LE(s.allocated, s.reserved);
    }
    for (auto& [p, h] : held) a.release(h.at.token);
    EXPECT_EQ(a.stats().allocated, 0);
    a.release_cached();
    EXPECT_TRUE(device.segments.empty()) << "a block that was not merged keeps its segment";
    EXPECT_EQ(a.stats().reserved, 0);
  }
}

TEST(Memory, TensorsGiveTheirMemoryBack) {
  int64_t before = allocator_of(DeviceType::cpu).stats().allocated;
  {
    Tensor x = zeros({1000}, DType::f32, DeviceType::cpu), view = slice(x, 0, 10, 5);
    x = {};
    EXPECT_EQ(allocator_of(DeviceType::cpu).stats().allocated, before + 4096) << "a view keeps its storage";
  }
  EXPECT_EQ(allocator_of(DeviceType::cpu).stats().allocated, before);
}

}  // namespace
}  // namespace sinter
