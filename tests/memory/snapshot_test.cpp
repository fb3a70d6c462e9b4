#include "memory/snapshot.h"

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/range.h"

namespace sinter {
namespace {

using Json = nlohmann::json;
constexpr int64_t mib = 1 << 20;
constexpr int64_t exact_in_javascript = int64_t(1) << 53;

// Unpickles as the viewer does, with just the opcodes that every reader knows.
struct Unpickler {
  const std::string& bytes;
  size_t at = 0, largest_append = 0, fetches = 0;
  std::vector<Json> stack = {};
  std::vector<size_t> marks = {};
  std::map<uint64_t, Json> memo = {};

  uint64_t number(int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; ++i) v |= uint64_t(uint8_t(bytes.at(at++))) << (8 * i);
    return v;
  }
  void append() {
    size_t mark = marks.back();
    marks.pop_back();
    largest_append = std::max(largest_append, stack.size() - mark);
    for (size_t i = mark; i < stack.size(); ++i) stack[mark - 1].push_back(std::move(stack[i]));
    stack.resize(mark);
  }
  void set_items() {
    size_t mark = marks.back();
    marks.pop_back();
    for (size_t i = mark; i < stack.size(); i += 2)
      stack[mark - 1][stack[i].get<std::string>()] = std::move(stack[i + 1]);
    stack.resize(mark);
  }
  void pair() {
    Json two = {stack[stack.size() - 2], stack.back()};
    stack.resize(stack.size() - 2);
    stack.push_back(two);
  }
  void fetch(uint64_t id) {
    ++fetches;
    stack.push_back(memo.at(id));
  }
  void long1() {
    EXPECT_EQ(number(1), 8u);
    auto value = int64_t(number(8));
    EXPECT_NE(value, int32_t(value)) << "BININT is enough";
    stack.push_back(value);
  }
  void unicode() {
    uint64_t n = number(4);
    stack.push_back(bytes.substr(at, n));
    at += n;
  }

  Json load() {
    EXPECT_EQ(number(1), 0x80u);
    EXPECT_EQ(number(1), 2u) << "the viewer reads protocols 2 to 4";
    for (;;) switch (int opcode = int(number(1))) {
        case '}': stack.push_back(Json::object()); break;
        case ']': stack.push_back(Json::array()); break;
        case '(': marks.push_back(stack.size()); break;
        case 'u': set_items(); break;
        case 'e': append(); break;
        case 'X': unicode(); break;
        case 'J': stack.push_back(int32_t(number(4))); break;
        case 0x8a: long1(); break;
        case 0x86: pair(); break;
        case 0x88: stack.push_back(true); break;
        case 0x89: stack.push_back(false); break;
        case 'q': memo[number(1)] = stack.back(); break;
        case 'r': memo[number(4)] = stack.back(); break;
        case 'h': fetch(number(1)); break;
        case 'j': fetch(number(4)); break;
        case '.': EXPECT_EQ(at, bytes.size()); return stack.at(0);
        default: ADD_FAILURE() << "opcode " << opcode << " at " << at; return {};
      }
  }
};

struct FakeDevice {
  int64_t limit = 512 * mib, used = 0;
  uint64_t next = uint64_t(1) << 48;  // where the meta device's addresses begin
  std::map<void*, int64_t> segments;
  CachingAllocator allocator{"fake", source()};

  CachingAllocator::Source source() {
    return {[this](size_t n) -> void* {
              if (used + int64_t(n) > limit) return nullptr;
              void* p = reinterpret_cast<void*>(next);
              next += n + 4096;
              segments[p] = int64_t(n), used += int64_t(n);
              return p;
            },
            [this](void* p) { used -= segments[p], segments.erase(p); }, [this] { return limit - used; }, [] {},
            [](void*, size_t, void*) {}};
  }
};

// What lies where, by address: sizes of segments, and sizes asked for of live blocks.
struct Layout {
  std::map<int64_t, int64_t> segments, blocks;
  bool operator==(const Layout&) const = default;
};

// Allocates and frees at random on two streams, in ranges and categories, and notes what was true after each event.
struct Program {
  FakeDevice device;
  std::mt19937_64 random{7};
  struct Live {
    Allocator::Allocation memory;
    int64_t requested;
  };
  std::vector<Live> live;
  std::map<size_t, Layout> truth;  // after so many events
  std::vector<MemoryEvent> events;
  int streams[2] = {};

  int64_t below(int64_t n) { return int64_t(random() % uint64_t(n)); }
  int64_t size() { return below(3) ? below(3000) : below(4) ? below(3 * mib) : below(40 * mib); }

  void allocate() {
    Range step("step"), phase(below(2) ? "forward" : "backward", RangeKind::phase);
    Range layer("layers." + std::to_string(below(3))), op("matmul", RangeKind::op);
    CategoryScope category(MemoryCategory(below(memory_category_count)));
    TensorRef tensor{nullptr, DType::bf16, 2, {below(9), 768}, {}};
    const TensorRef* holds = below(2) ? &tensor : nullptr;
    int64_t bytes = size();
    live.push_back({device.allocator.allocate(bytes, below(3) ? &streams[0] : &streams[1], holds), bytes});
  }
  void free_one() {
    if (live.empty()) return;
    std::swap(live[size_t(below(int64_t(live.size())))], live.back());
    device.allocator.release(live.back().memory.token);
    live.pop_back();
  }
  void run_out() {
    Range outer("load");
    EXPECT_THROW(device.allocator.allocate(device.limit, nullptr), Error);
  }
  void note() {
    for (MemoryEvent& e : device.allocator.take_events()) events.push_back(e);
    Layout now;
    for (auto [p, n] : device.segments) now.segments[int64_t(p)] = n;
    for (const Live& l : live) now.blocks[int64_t(l.memory.data)] = l.requested;
    truth[events.size()] = now;
  }
  void step() {
    int64_t dice = below(1000);
    if (dice < 2) run_out();
    else if (dice < 5) device.allocator.release_cached();
    else if (dice < 500 || live.size() > 200) free_one();
    else allocate();
  }

  // Recording begins when much is alive already.
  Snapshot snapshot(int steps) {
    for (int i = 0; i < 300; ++i) step();
    for (int i = 0; i < 20; ++i) allocate();
    device.allocator.record_events(true);
    note();
    for (int i = 0; i < steps; ++i) step(), note();
    return {events, device.allocator.segments(), device.limit};
  }
};

// MemoryViz.js: pairs of free events become one; what has a category is listed.
struct Viewer {
  Json snapshot;
  std::vector<Json> trace = {};
  std::set<std::string> categories = {};

  explicit Viewer(Json s) : snapshot(std::move(s)) {
    for (Json& t : snapshot["device_traces"][0]) {
      if (t["action"] == "free_completed" && !trace.empty() && trace.back()["action"] == "free_requested" &&
          trace.back()["addr"] == t["addr"]) {
        trace.back()["action"] = "free";
        continue;
      }
      if (t.contains("category")) categories.insert(t["category"]);
      trace.push_back(t);
    }
  }

  // Allocator State History after so many events: from the end, backwards. Addresses of blocks are sums of sizes.
  Layout after(size_t count) const {
    Layout now;
    for (const Json& s : snapshot["segments"]) {
      now.segments[s["address"]] = s["total_size"];
      int64_t address = s["address"];
      for (const Json& b : s["blocks"]) {
        if (b["state"] == "active_allocated") now.blocks[address] = b["requested_size"];
        address += b["size"].get<int64_t>();
      }
    }
    for (size_t i = trace.size(); i-- > count;) undo(trace[i], now);
    return now;
  }
  static void undo(const Json& e, Layout& now) {
    std::string action = e["action"];
    if (action == "free") now.blocks[e["addr"]] = e["size"];
    if (action == "alloc" && !now.blocks.erase(e["addr"])) ADD_FAILURE() << "no such block: " << e;
    if (action == "segment_free") now.segments[e["addr"]] = e["size"];
    if (action == "segment_alloc" && !now.segments.erase(e["addr"])) ADD_FAILURE() << "no such segment: " << e;
  }
  static bool every_block_lies_in_a_segment(const Layout& l) {
    for (auto [address, size] : l.blocks) {
      auto s = l.segments.upper_bound(address);
      if (s == l.segments.begin() || std::prev(s)->first + std::prev(s)->second < address + size) return false;
    }
    return true;
  }
};

std::set<std::string> keys_of(const Json& dict) {
  std::set<std::string> keys;
  for (const auto& [key, value] : dict.items()) keys.insert(key);
  return keys;
}

// The frames that the viewer leaves out.
bool dropped(const Json& frame) {
  std::string name = frame["name"], file = frame["filename"];
  for (const char* part : {"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start",
                           "__libc_start_main", "PyEval_", "PyObject_", "PyFunction_"})
    if (name.find(part) != std::string::npos) return true;
  for (const char* part : {"core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c",
                           "Objects/methodobject.c", "pycore_ceval.h", "ceval.c", "cpython/abstract.h"})
    if (file.find(part) != std::string::npos) return true;
  return false;
}

class SnapshotFile : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    program = new Program;
    snapshot = new Snapshot(program->snapshot(3000));
    json = new Json(Json::parse(to_json(*snapshot)));
  }
  static void TearDownTestSuite() { delete json, delete snapshot, delete program; }
  static const Json& events() { return (*json)["device_traces"][0]; }

  static Program* program;
  static Snapshot* snapshot;
  static Json* json;
};
Program* SnapshotFile::program;
Snapshot* SnapshotFile::snapshot;
Json* SnapshotFile::json;

TEST_F(SnapshotFile, PickleAndJsonAreTheSame) {
  std::string pickle = to_pickle(*snapshot);
  Unpickler p{pickle};
  EXPECT_EQ(p.load(), *json);
  EXPECT_LE(p.largest_append, 1000u) << "the viewer passes them as a call's arguments";
  EXPECT_GT(p.largest_append, 900u) << "this snapshot has lists long enough to be divided";
  EXPECT_GT(p.fetches, events().size() * 8) << "keys and frames are shared";
}

TEST_F(SnapshotFile, HasEveryField) {
  EXPECT_EQ(keys_of(*json), (std::set<std::string>{"segments", "device_traces", "allocator_settings"}));
  EXPECT_EQ((*json)["device_traces"].size(), 1u);
  EXPECT_EQ((*json)["allocator_settings"]["device_memory"], snapshot->memory_bytes);
  std::set<std::string> seen, optional = {"category", "user_metadata"};
  for (const Json& s : (*json)["segments"]) {
    EXPECT_EQ(keys_of(s), (std::set<std::string>{"device", "address", "total_size", "allocated_size", "active_size",
                                                 "requested_size", "stream", "segment_type", "segment_pool_id",
                                                 "is_expandable", "frames", "blocks"}));
    EXPECT_EQ(s["segment_pool_id"], Json({0, 0}));
    EXPECT_EQ(s["is_expandable"], false);
    seen.insert(s["segment_type"]);
    for (const Json& b : s["blocks"]) {
      std::set<std::string> keys = keys_of(b);
      keys.erase("user_metadata");
      EXPECT_EQ(keys, (std::set<std::string>{"address", "size", "requested_size", "state", "frames"}));
      seen.insert(b["state"]);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"large", "small", "active_allocated", "inactive"}));
  for (const Json& e : events()) {
    std::set<std::string> keys = keys_of(e);
    for (const std::string& key : optional) keys.erase(key);
    const char* where = e["action"] == "oom" ? "device_free" : "addr";
    EXPECT_EQ(keys, (std::set<std::string>{"action", where, "size", "stream", "time_us", "frames"}));
  }
}

TEST_F(SnapshotFile, KnowsEveryAction) {
  std::set<std::string> actions;
  for (const Json& e : events()) actions.insert(e["action"]);
  EXPECT_EQ(actions, (std::set<std::string>{"alloc", "free_requested", "free_completed", "segment_alloc",
                                            "segment_free", "oom", "snapshot"}));
}

TEST_F(SnapshotFile, BlocksTileSegments) {
  ASSERT_GE((*json)["segments"].size(), 4u);
  for (const Json& s : (*json)["segments"]) {
    int64_t at = s["address"], active = 0, requested = 0;
    for (const Json& b : s["blocks"]) {
      EXPECT_EQ(b["address"], at);
      EXPECT_LE(b["requested_size"], b["size"]);
      at += b["size"].get<int64_t>();
      bool used = b["state"] == "active_allocated";
      if (used) active += b["size"].get<int64_t>();
      requested += b["requested_size"].get<int64_t>();
      EXPECT_EQ(b["frames"].empty(), !used);
    }
    EXPECT_EQ(at, s["address"].get<int64_t>() + s["total_size"].get<int64_t>());
    EXPECT_EQ(s["allocated_size"], active);
    EXPECT_EQ(s["active_size"], active);
    EXPECT_EQ(s["requested_size"], requested) << "torch's stats: free + rounding + requested = total";
  }
}

TEST_F(SnapshotFile, FreesComeInPairs) {
  const Json& all = events();
  size_t pairs = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]["action"] == "free_completed") {
      EXPECT_EQ(all.at(i - 1)["action"], "free_requested");
    }
    if (all[i]["action"] != "free_requested") continue;
    ++pairs;
    ASSERT_EQ(all.at(i + 1)["action"], "free_completed");
    EXPECT_EQ(all[i + 1]["addr"], all[i]["addr"]);
    EXPECT_EQ(all[i + 1]["size"], all[i]["size"]);
  }
  EXPECT_GT(pairs, 1000u);
  EXPECT_EQ(Viewer(*json).trace.size(), snapshot->events.size() + 1);
}

// Recording began in the middle, segments came and went: going backwards from the end must meet what was true.
TEST_F(SnapshotFile, StateHistoryGoesBackwardsThroughTheTruth) {
  Viewer viewer(*json);
  size_t checked = 0, initially = program->truth.begin()->second.blocks.size();
  EXPECT_GT(initially, 20u);
  for (const auto& [count, truth] : program->truth) {
    if (checked++ % 37) continue;  // each replay is from the end
    Layout shown = viewer.after(count);
    ASSERT_EQ(shown, truth) << "after " << count << " events";
    ASSERT_TRUE(Viewer::every_block_lies_in_a_segment(shown));
  }
  EXPECT_EQ(viewer.after(0), program->truth.at(0));
}

TEST_F(SnapshotFile, CategoriesIncludeUnknown) {
  Viewer viewer(*json);
  std::set<std::string> expected = {"unknown"};
  for (int c = 0; c < memory_category_count; ++c) expected.insert(name_of(MemoryCategory(c)));
  EXPECT_EQ(viewer.categories, expected);
  EXPECT_LE(expected.size(), 10u) << "the viewer has ten colours";
  for (const Json& e : events()) {
    std::string action = e["action"];
    EXPECT_EQ(e.contains("category"), action == "alloc" || action.starts_with("free") || action == "snapshot");
  }
  Snapshot empty;
  EXPECT_EQ(Viewer(Json::parse(to_json(empty))).categories, (std::set<std::string>{"unknown"}));
}

TEST_F(SnapshotFile, NumbersAreExactInJavascript) {
  for (const Json& s : (*json)["segments"])
    EXPECT_LT(s["address"].get<int64_t>() + s["total_size"].get<int64_t>(), exact_in_javascript);
  int64_t before = 0;
  for (const Json& e : events()) {
    for (const char* key : {"addr", "size", "stream", "time_us", "device_free"})
      EXPECT_LT(e.value(key, int64_t(0)), exact_in_javascript);
    EXPECT_GE(e["time_us"], before);
    before = e["time_us"];
  }
  EXPECT_GT(before, int64_t(1'600'000'000) * 1'000'000) << "microseconds of the time of day";
}

TEST_F(SnapshotFile, EventsSayWhatWasAskedForAndWhatItHolds) {
  size_t described = 0, streams_differ = 0;
  for (size_t i = 0, j = 0; i < snapshot->events.size(); ++i, ++j) {
    const MemoryEvent& e = snapshot->events[i];
    bool block = e.action == MemoryEvent::alloc || e.action == MemoryEvent::free;
    EXPECT_EQ(events()[j]["size"], block ? e.requested : e.bytes);
    if (events()[j]["stream"] != events()[0]["stream"]) ++streams_differ;
    EXPECT_EQ(events()[j].contains("user_metadata"), block && e.tensor.rank >= 0);
    if (block && e.tensor.rank >= 0) {
      ++described;
      EXPECT_EQ(events()[j]["user_metadata"], describe(e.tensor));
    }
    if (e.action == MemoryEvent::out_of_memory) {
      EXPECT_EQ(events()[j]["device_free"], e.address);
    }
    if (e.action == MemoryEvent::free) ++j;
  }
  EXPECT_GT(described, 100u);
  EXPECT_GT(streams_differ, 100u);
}

TEST(Snapshot, DescribesTensors) {
  EXPECT_EQ(describe({nullptr, DType::f32, 3, {4, 256, 768}, {}}), "fp32 [4, 256, 768]");
  EXPECT_EQ(describe({nullptr, DType::i64, 0, {}, {}}), "int64 []");
}

// The frames of one allocation made here.
Json frames_of(FakeDevice& device) {
  device.allocator.record_events(true);
  device.allocator.release(device.allocator.allocate(1000, nullptr).token);
  Snapshot s{device.allocator.take_events(), device.allocator.segments(), 0};
  std::string pickle = to_pickle(s);
  Json json = Unpickler{pickle}.load();
  for (const Json& e : json["device_traces"][0])
    if (e["action"] == "alloc") return e["frames"];
  return {};
}

TEST(Snapshot, FramesAreTheRangesInnermostFirst) {
  FakeDevice device;
  Range phase("phase here", RangeKind::phase), layer("layers.3"), op("matmul", RangeKind::op);
  Json frames = frames_of(device);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0]["name"], "matmul");
  EXPECT_EQ(frames[1]["name"], "layers.3");
  EXPECT_EQ(frames[2]["name"], "phase here");
  for (const Json& f : frames) {
    EXPECT_EQ(keys_of(f), (std::set<std::string>{"filename", "line", "name"}));
    EXPECT_TRUE(f["filename"].get<std::string>().ends_with("snapshot_test.cpp"));
    EXPECT_GT(f["line"], 0);
  }
}

TEST(Snapshot, OutsideAnyRangeIsSaid) {
  FakeDevice device;
  Json frames = frames_of(device);
  ASSERT_EQ(frames.size(), 1u) << "the viewer takes no frames for: was not recorded";
  EXPECT_EQ(frames[0]["name"], "outside any range");
}

TEST(Snapshot, IntegersOfEverySize) {
  for (int64_t n : {int64_t(0), int64_t(INT32_MAX), int64_t(INT32_MAX) + 1, int64_t(UINT32_MAX),
                    int64_t(UINT32_MAX) + 1, exact_in_javascript - 1, int64_t(INT32_MIN), int64_t(INT32_MIN) - 1}) {
    std::string pickle = to_pickle({{}, {}, n});
    EXPECT_EQ(Unpickler{pickle}.load()["allocator_settings"]["device_memory"], n);
  }
}

TEST(Snapshot, NamesAreQuotedInJson) {
  FakeDevice device;
  Range range("a \"b\"\\\n\tä");
  device.allocator.record_events(true);
  device.allocator.release(device.allocator.allocate(1000, nullptr).token);
  Snapshot s{device.allocator.take_events(), device.allocator.segments(), 0};
  EXPECT_EQ(Json::parse(to_json(s))["device_traces"][0][0]["frames"][0]["name"], "a \"b\"\\\n\tä");
  std::string pickle = to_pickle(s);
  EXPECT_EQ(Unpickler{pickle}.load(), Json::parse(to_json(s)));
}

TEST(Snapshot, TheViewerDropsNoFrame) {
  FakeDevice device;
  for (const char* name : {"run_start", "__libc_start_main", "PyEval_x", "PyObject_", "PyFunction_", "unwind::unwind",
                           "CapturedTraceback::gather", "gather_with_cpp", "a_start_start"}) {
    Range range(name);
    Json frames = frames_of(device);
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_FALSE(dropped(frames[0])) << frames[0];
    std::string shown = frames[0]["name"], without_blanks;
    for (char c : shown)
      if (c != ' ') without_blanks += c;
    EXPECT_EQ(without_blanks, name) << "still to be recognised";
  }
#line 7 "src/core/boxing/Register_ceval.c"
  Range range("odd file");
  EXPECT_FALSE(dropped(frames_of(device)[0]));
}

}  // namespace
}  // namespace sinter
