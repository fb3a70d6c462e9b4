// The file that others read: every rule of Kineto's format and of HolisticTraceAnalysis.
#include "profile/trace.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 finds it in std::regex when sanitizing
#endif

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <unistd.h>

namespace sinter {
namespace {

using Json = nlohmann::json;

Activity kernel(const char* name, int64_t begin, int64_t end, uint32_t correlation = 0, int stream = 7) {
  Activity a;
  a.name = name, a.begin_ns = begin, a.end_ns = end, a.correlation = correlation, a.stream = stream;
  a.grid[0] = 4, a.grid[1] = 2, a.grid[2] = 1, a.block[0] = 128, a.block[1] = a.block[2] = 1;
  a.registers = 32, a.shared_bytes = 1024;
  return a;
}
Activity copy(const char* name, int64_t begin, int64_t end, uint32_t correlation,
              Activity::Kind kind = Activity::copy) {
  Activity a = kernel(name, begin, end, correlation);
  a.kind = kind, a.bytes = 3 * (end - begin);
  return a;
}
Activity call(const char* name, int64_t begin, int64_t end, uint32_t correlation, int64_t thread = 0) {
  Activity a;
  a.kind = Activity::runtime_call;
  a.name = name, a.begin_ns = begin, a.end_ns = end, a.correlation = correlation, a.thread = thread;
  return a;
}

// The id of a place: names from the outside in, "name" for a module, "!name" for a phase, ".name" for an op.
uint32_t place(std::initializer_list<const char*> names) {
  std::vector<std::unique_ptr<Range>> ranges;
  for (const char* n : names) {
    RangeKind kind = *n == '!' ? RangeKind::phase : *n == '.' ? RangeKind::op : RangeKind::module;
    ranges.push_back(std::make_unique<Range>(kind == RangeKind::module ? n : n + 1, kind));
  }
  uint32_t id = Range::current().id;
  while (!ranges.empty()) ranges.pop_back();
  return id;
}

constexpr int64_t thread = 4242, other_thread = 4343, start = 1'000'000'000'000'123;

// Two iterations; the second runs late on the device. Launches by the runtime and by the driver, on two streams.
Trace two_steps() {
  Trace t;
  t.device_name = "A \"GPU\"", t.device_memory = int64_t(80) << 30, t.multiprocessors = 132, t.compute_capability = 90;
  t.rank = 3, t.world_size = 8;
  auto at = [](int64_t us) { return start + us * 1000; };
  auto span = [&](std::initializer_list<const char*> names, int64_t begin, int64_t end, int64_t on = thread) {
    t.ranges.push_back({place(names), at(begin), at(end), on});
  };
  for (int64_t s : {0, 100}) {
    auto c = uint32_t(s + 1);
    t.steps.emplace_back(at(s), at(s + 90));
    span({"step", "!forward", "layers.0", "attn", "scores", ".matmul"}, s + 6, s + 12);
    span({"step", "!forward", "layers.0", "attn", "scores"}, s + 5, s + 15);
    span({"step", "!forward", "layers.0", "attn"}, s + 4, s + 16);
    span({"step", "!forward", "layers.0", ".add"}, s + 17, s + 20);
    span({"step", "!forward", "layers.0"}, s + 3, s + 21);
    span({"step", "!forward"}, s + 2, s + 22);
    span({"step", "!optimizer", ".adamw"}, s + 31, s + 39);
    span({"step", "!optimizer"}, s + 30, s + 40);
    span({"step"}, s + 1, s + 80);
    span({"loader", ".copy"}, s + 50, s + 60, other_thread);
    span({"loader"}, s + 49, s + 61, other_thread);
    t.calls.push_back(call("cuLaunchKernelEx", at(s + 7), at(s + 9), c, thread));
    t.calls.push_back(call("cuLaunchKernel", at(s + 18), at(s + 18), c + 1, thread));  // inside the runtime's
    t.calls.push_back(call("cudaLaunchKernel_v7000", at(s + 18), at(s + 19), c + 1, thread));
    t.calls.push_back(call("cudaLaunchKernelExC_v11060", at(s + 32), at(s + 33), c + 2, thread));
    t.calls.push_back(call("cuMemcpyHtoDAsync_v2", at(s + 51), at(s + 52), c + 3, other_thread));
    t.calls.push_back(call("cuMemsetD8Async", at(s + 34), at(s + 35), c + 4, thread));
    t.calls.push_back(call("cuCtxGetCurrent", at(s + 36), at(s + 36), c + 5, thread));
    t.calls.push_back(call("cudaStreamSynchronize", at(s + 70), at(s + 79), c + 6, thread));
    t.device.push_back(kernel("void gemm<float>(\"x\\\")", at(s + 40) + 1, at(s + 45) + 7, c));
    t.device.push_back(kernel("add", at(s + 46), at(s + 47), c + 1));
    t.device.push_back(kernel("adamw", at(s + 50), at(s + 52), c + 2));
    t.device.push_back(copy("HtoD (Pageable -> Device)", at(s + 53), at(s + 54), c + 3));
    t.device.push_back(copy("Memset (Device)", at(s + 52), at(s + 53), c + 4, Activity::fill));
    t.device.push_back(kernel("ncclKernel_AllReduce", at(s + 41), at(s + 44), 0, 0));
  }
  t.device[0].range = t.ranges[0].range;
  t.memory = {{at(3), 1 << 20}, {at(8), 5 << 20}, {at(22), 1 << 20}};
  return t;
}

struct Parsed {
  std::string text;
  Json json;
  std::vector<Json> of(const std::string& category, const std::string& phase = "X") const {
    std::vector<Json> found;
    for (const Json& e : json["traceEvents"])
      if (e["ph"] == phase && e.value("cat", "") == category) found.push_back(e);
    return found;
  }
  std::vector<Json> phase(const std::string& phase) const {
    std::vector<Json> found;
    for (const Json& e : json["traceEvents"])
      if (e["ph"] == phase) found.push_back(e);
    return found;
  }
  const Json& named(const std::string& category, const std::string& name) const {
    for (const Json& e : json["traceEvents"])
      if (e.value("cat", "") == category && e["name"] == name) return e;
    ADD_FAILURE() << "no " << category << " " << name;
    return json;
  }
};
Parsed parsed(const Trace& trace) {
  std::string text = to_kineto(trace);
  return {text, Json::parse(text)};
}

TEST(KinetoTrace, HeaderIsAsKinetoWritesIt) {
  Json j = parsed(two_steps()).json;
  EXPECT_EQ(j["schemaVersion"], 1);
  EXPECT_EQ(j["deviceProperties"][0]["name"], "A \"GPU\"");
  EXPECT_EQ(j["deviceProperties"][0]["totalGlobalMem"], int64_t(80) << 30);
  EXPECT_EQ(j["deviceProperties"][0]["numSms"], 132);
  EXPECT_EQ(j["deviceProperties"][0]["computeMajor"], 9);
  EXPECT_EQ(j["distributedInfo"]["rank"], 3);
  EXPECT_EQ(j["distributedInfo"]["world_size"], 8);
  EXPECT_TRUE(j["distributedInfo"].contains("backend"));
  EXPECT_TRUE(j["displayTimeUnit"].is_string());
  EXPECT_TRUE(j["traceName"].is_string());
  EXPECT_TRUE(j["baseTimeNanoseconds"].is_number_integer());
}

// HTA searches the text, not the JSON, and takes the first match.
TEST(KinetoTrace, HtaFindsTheRank) {
  std::string text = to_kineto(two_steps());
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex("\"rank\":\\s+(\\d+)")));
  EXPECT_EQ(match[1], "3");
  EXPECT_EQ(text.find("\"rank\""), size_t(match.position())) << "nothing that compact JSON would be read from";
}

TEST(KinetoTrace, TimesAreMicrosecondsSinceTheBase) {
  Trace t = two_steps();
  Parsed p = parsed(t);
  EXPECT_TRUE(std::regex_search(p.text, std::regex("\"ts\": 40\\.001, \"dur\": 5\\.006,")));
  for (const Json& e : p.json["traceEvents"]) {
    EXPECT_GE(e["ts"], 0.0);
    EXPECT_LT(e["ts"], 1000.0);
  }
  size_t times = 0;
  const std::regex time("\"(ts|dur)\": ([0-9.]+)"), three_decimals("[0-9]+\\.[0-9]{3}");
  for (std::sregex_iterator i(p.text.begin(), p.text.end(), time), end; i != end; ++i, ++times)
    EXPECT_TRUE(std::regex_match(i->str(2), three_decimals)) << i->str();
  EXPECT_GT(times, p.json["traceEvents"].size());
  // The base is the time of day of what the steady clock calls `start`.
  auto ns = [](auto now) { return double(std::chrono::nanoseconds(now.time_since_epoch()).count()); };
  double expected = ns(std::chrono::system_clock::now()) - ns(std::chrono::steady_clock::now()) + double(start);
  EXPECT_NEAR(p.json["baseTimeNanoseconds"].get<double>(), expected, 1e9);
}

TEST(KinetoTrace, EveryEventHasWhatHtaNeeds) {
  Parsed p = parsed(two_steps());
  std::set<std::string> categories;
  for (const Json& e : p.phase("X")) {
    for (const char* key : {"ts", "dur", "name", "cat", "pid", "tid"}) EXPECT_TRUE(e.contains(key)) << e;
    categories.insert(e["cat"]);
    for (const char* key : {"stream", "correlation", "External id", "device", "context", "bytes",
                            "registers per thread", "shared memory"})
      EXPECT_TRUE(!e["args"].contains(key) || e["args"][key].is_number_integer()) << e;
  }
  EXPECT_EQ(categories, (std::set<std::string>{"cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime",
                                               "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset"}));
  EXPECT_EQ(p.json["traceEvents"][0]["ph"], "M") << "HTA takes index 0 for: no launch";
}

TEST(KinetoTrace, OnlyWhatRanOnTheDeviceHasAStream) {
  Parsed p = parsed(two_steps());
  size_t on_device = 0;
  for (const Json& e : p.phase("X")) {
    std::string category = e["cat"];
    bool device = category == "kernel" || category.starts_with("gpu_mem");
    EXPECT_EQ(e["args"].contains("stream"), device) << "HTA counts it as a kernel";
    on_device += device;
    if (!device) continue;
    EXPECT_GT(e["args"]["stream"], 0) << "HTA gives it no iteration";
    EXPECT_EQ(e["tid"], e["args"]["stream"]);
    EXPECT_EQ(e["pid"], e["args"]["device"]);
  }
  EXPECT_EQ(on_device, 12u);
  EXPECT_EQ(p.named("kernel", "ncclKernel_AllReduce")["args"]["stream"], 7);
}

TEST(KinetoTrace, KernelsSayHowTheyRan) {
  Trace t = two_steps();
  Json args = parsed(t).named("kernel", t.device[0].name)["args"];
  EXPECT_EQ(args["grid"], Json({4, 2, 1}));
  EXPECT_EQ(args["block"], Json({128, 1, 1}));
  EXPECT_EQ(args["registers per thread"], 32);
  EXPECT_EQ(args["shared memory"], 1024);
  EXPECT_EQ(args["correlation"], 1);
  EXPECT_TRUE(args.contains("context"));
  EXPECT_EQ(args["range"], "step/forward/layers.0/attn/scores/matmul");
}

TEST(KinetoTrace, CopiesAndFillsAreNamedAsHtaExpects) {
  Parsed p = parsed(two_steps());
  for (const Json& e : p.of("gpu_memcpy")) {
    EXPECT_TRUE(e["name"].get<std::string>().starts_with("Memcpy HtoD"));
    EXPECT_EQ(e["args"]["bytes"], 3000);
    EXPECT_EQ(e["args"]["memory bandwidth (GB/s)"], 3.0);
    EXPECT_TRUE(e["args"]["memory bandwidth (GB/s)"].is_number_float());
  }
  for (const Json& e : p.of("gpu_memset")) EXPECT_EQ(e["name"], "Memset (Device)");
}

// HTA rounds inward to whole microseconds.
double begin_in_hta(const Json& e) { return std::ceil(e["ts"].get<double>()); }
double end_in_hta(const Json& e) { return std::floor(e["ts"].get<double>() + e["dur"].get<double>()); }

// What HTA does: a kernel's launch is the host's event with its correlation, and must bear one of four names.
TEST(KinetoTrace, HtaFindsEveryLaunchAndItsIteration) {
  Parsed p = parsed(two_steps());
  const std::set<std::string> launches = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync",
                                          "cudaMemsetAsync"};
  std::map<int, std::vector<Json>> host;
  for (const char* category : {"cuda_runtime", "cuda_driver"})
    for (const Json& e : p.of(category)) host[e["args"]["correlation"]].push_back(e);
  size_t joined = 0;
  for (const char* category : {"kernel", "gpu_memcpy", "gpu_memset"})
    for (const Json& e : p.of(category)) {
      if (!e["args"].contains("correlation")) continue;
      ++joined;
      size_t known = 0;
      for (const Json& h : host[e["args"]["correlation"]]) known += launches.contains(h["name"]);
      EXPECT_EQ(known, 1u) << e;
      const Json& h = host[e["args"]["correlation"]].front();
      int iteration = -1;
      for (const Json& step : p.of("user_annotation")) {
        std::string name = step["name"];
        if (name.starts_with("ProfilerStep#") && begin_in_hta(step) <= begin_in_hta(h) &&
            begin_in_hta(h) < end_in_hta(step))
          iteration = std::stoi(name.substr(13));
      }
      EXPECT_EQ(iteration, e["args"]["correlation"].get<int>() / 100);
    }
  EXPECT_EQ(joined, 10u);
}

TEST(KinetoTrace, DriverCallsAreRenamedOnlyWhereTheyAreTheLaunch) {
  Parsed p = parsed(two_steps());
  Json ex = p.named("cuda_runtime", "cudaLaunchKernelExC");
  EXPECT_EQ(ex["args"]["driver call"], "cuLaunchKernelEx");
  EXPECT_EQ(p.named("cuda_runtime", "cudaMemcpyAsync")["args"]["driver call"], "cuMemcpyHtoDAsync");
  EXPECT_EQ(p.named("cuda_runtime", "cudaMemsetAsync")["args"]["driver call"], "cuMemsetD8Async");
  EXPECT_EQ(p.named("cuda_driver", "cuLaunchKernel")["args"]["correlation"], 2) << "the runtime's call is there too";
  EXPECT_FALSE(p.named("cuda_runtime", "cudaLaunchKernel")["args"].contains("driver call"));
  p.named("cuda_driver", "cuCtxGetCurrent");
  p.named("cuda_runtime", "cudaStreamSynchronize");
}

TEST(KinetoTrace, StepsAreProfilerSteps) {
  std::vector<std::string> names;
  for (const Json& e : parsed(two_steps()).of("user_annotation"))
    if (std::regex_match(e["name"].get<std::string>(), std::regex("ProfilerStep\\s*#\\s*(\\d+)")))
      names.push_back(e["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"ProfilerStep#0", "ProfilerStep#1"}));
}

TEST(KinetoTrace, RangesAreOpsAndAnnotationsOnTheirThreads) {
  Trace t = two_steps();
  Parsed p = parsed(t);
  EXPECT_EQ(p.of("cpu_op").size(), 8u);
  EXPECT_EQ(p.of("user_annotation").size(), 14u + 2u);
  std::set<int> external;
  for (const Json& e : p.of("cpu_op")) external.insert(e["args"]["External id"].get<int>());
  EXPECT_EQ(external.size(), 8u) << "one number per op";
  for (const Json& e : p.of("cpu_op")) {
    EXPECT_EQ(e["pid"], getpid());
    EXPECT_EQ(e["tid"], e["name"] == "copy" ? other_thread : thread);
  }
  EXPECT_EQ(p.named("user_annotation", "attn")["args"]["range"], "step/forward/layers.0/attn");
}

// Kernel → call → op, by the External id.
TEST(KinetoTrace, KernelsAndCallsBelongToTheirOp) {
  Trace t = two_steps();
  Parsed p = parsed(t);
  std::map<int, std::string> op;
  for (const Json& e : p.of("cpu_op")) op[e["args"]["External id"]] = e["name"];
  auto op_of = [&](const char* category, const std::string& name) {
    return op[p.named(category, name)["args"]["External id"]];
  };
  EXPECT_EQ(op_of("kernel", t.device[0].name), "matmul");
  EXPECT_EQ(op_of("kernel", "add"), "add");
  EXPECT_EQ(op_of("kernel", "adamw"), "adamw");
  EXPECT_EQ(op_of("gpu_memset", "Memset (Device)"), "adamw");
  EXPECT_EQ(op_of("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"), "copy") << "the thread matters";
  EXPECT_EQ(op_of("cuda_runtime", "cudaLaunchKernelExC"), "matmul");
  EXPECT_EQ(p.named("cuda_runtime", "cudaStreamSynchronize")["args"]["External id"], 0) << "no op around it";
}

TEST(KinetoTrace, PhasesAndModulesAreShownOnTheDevice) {
  Parsed p = parsed(two_steps());
  std::multiset<std::string> names;
  for (const Json& e : p.of("gpu_user_annotation")) {
    if (e["ts"] < 100) names.insert(e["name"]);
    EXPECT_EQ(e["pid"], 0);
    EXPECT_EQ(e["tid"], 7);
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"forward", "layers.0", "attn", "optimizer"}))
      << "phases and two levels below; no step, scores or loader";
  auto time = [&](const char* name) {
    const Json& e = p.named("gpu_user_annotation", name);
    double begin = e["ts"];
    return std::pair(std::lround(1000 * begin), std::lround(1000 * (begin + e["dur"].get<double>())));
  };
  EXPECT_EQ(time("forward"), std::pair(40'001L, 47'000L)) << "the kernels' time, though launched long before";
  EXPECT_EQ(time("layers.0"), std::pair(40'001L, 47'000L));
  EXPECT_EQ(time("attn"), std::pair(40'001L, 45'007L));
  EXPECT_EQ(time("optimizer"), std::pair(50'000L, 53'000L));
}

// Without a launch to go by (device events instead of CUPTI), the kernel's own time decides.
TEST(KinetoTrace, KernelsWithoutALaunchAreAnnotatedByTheirOwnTime) {
  Trace t;
  t.ranges = {{place({"!backward"}), 1000, 9000, thread}};
  t.device = {kernel("inside", 2000, 3000), kernel("after", 9500, 9900)};
  Json e = parsed(t).named("gpu_user_annotation", "backward");
  EXPECT_EQ(e["ts"], 1.0);
  EXPECT_EQ(e["dur"], 1.0);
}

TEST(KinetoTrace, StreamsHaveTheirOwnAnnotations) {
  Trace t;
  t.ranges = {{place({"!backward"}), 0, 9000, thread}};
  t.device = {kernel("a", 2000, 3000, 0, 7), kernel("b", 4000, 6000, 0, 13), kernel("c", 7000, 8000, 0, 7)};
  std::map<int, double> length;
  for (const Json& e : parsed(t).of("gpu_user_annotation")) length[e["tid"]] = e["dur"];
  EXPECT_EQ(length, (std::map<int, double>{{7, 6.0}, {13, 2.0}}));
}

TEST(KinetoTrace, ArrowsLeadFromCallsToWhatTheyStarted) {
  Parsed p = parsed(two_steps());
  std::vector<Json> from = p.of("ac2g", "s"), to = p.of("ac2g", "f");
  ASSERT_EQ(from.size(), 10u);
  ASSERT_EQ(to.size(), 10u);
  auto starts_a_slice = [&](const Json& end, bool device) {
    for (const Json& e : p.phase("X"))
      if (e["ts"] == end["ts"] && e["pid"] == end["pid"] && e["tid"] == end["tid"] &&
          e["args"].value("correlation", -1) == end["id"] && e["args"].contains("stream") == device)
        return true;
    return false;
  };
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i]["name"], "ac2g");
    EXPECT_EQ(to[i]["name"], "ac2g");
    EXPECT_EQ(from[i]["id"], to[i]["id"]);
    EXPECT_EQ(to[i]["bp"], "e");
    EXPECT_TRUE(starts_a_slice(from[i], false)) << from[i];
    EXPECT_TRUE(starts_a_slice(to[i], true)) << to[i];
  }
}

TEST(KinetoTrace, AGraphsLaunchHasOneArrow) {
  Trace t;
  t.calls = {call("cudaGraphLaunch_v10000", 0, 1000, 5)};
  t.device = {kernel("b", 4000, 5000, 5), kernel("a", 2000, 3000, 5)};
  Parsed p = parsed(t);
  ASSERT_EQ(p.of("ac2g", "s").size(), 1u);
  ASSERT_EQ(p.of("ac2g", "f").size(), 1u);
  EXPECT_EQ(p.of("ac2g", "f")[0]["ts"], 2.0) << "to the first";
}

TEST(KinetoTrace, MemoryIsACounter) {
  std::vector<Json> counters = parsed(two_steps()).phase("C");
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[1]["args"]["Total Allocated"], 5 << 20);
  EXPECT_EQ(counters[1]["ts"], 8.0);
}

TEST(KinetoTrace, ProcessesAndTracksHaveNames) {
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> described;
  for (const Json& e : parsed(two_steps()).phase("M"))
    described[e["name"]].emplace(e["pid"].get<int64_t>(), e["tid"].get<int64_t>());
  std::set<std::pair<int64_t, int64_t>> processes = {{getpid(), 0}, {0, 0}};
  std::set<std::pair<int64_t, int64_t>> tracks = {{getpid(), thread}, {getpid(), other_thread}, {0, 7}};
  EXPECT_EQ(described["process_name"], processes);
  EXPECT_EQ(described["process_labels"], processes);
  EXPECT_EQ(described["process_sort_index"], processes);
  EXPECT_EQ(described["thread_name"], tracks);
  EXPECT_EQ(described["thread_sort_index"], tracks);
}

TEST(KinetoTrace, OnTheHostOpsAreTheKernels) {
  Trace t = two_steps();
  t.on_host = true;
  for (Activity& a : t.device) a.stream = 0;
  Parsed p = parsed(t);
  std::set<std::string> categories;
  for (const Json& e : p.phase("X")) {
    categories.insert(e["cat"]);
    EXPECT_FALSE(e["args"].contains("stream"));
    EXPECT_EQ(e["pid"], getpid());
  }
  EXPECT_EQ(categories, (std::set<std::string>{"cpu_op", "user_annotation"}));
  EXPECT_EQ(p.of("cpu_op").size(), 8u);
  EXPECT_EQ(p.phase("C").size(), 3u);
  EXPECT_TRUE(p.phase("s").empty());
  EXPECT_TRUE(p.json["deviceProperties"].empty());
}

// HTA: kernels have a stream above 0 and a correlation, and collectives NCCL's name.
TEST(KinetoTrace, OnTheHostLanesAreStreams) {
  Trace t = two_steps();
  t.on_host = true;
  t.calls.clear(), t.device.clear();
  t.device.push_back(kernel("matmul", start, start + 5000, 0, 0));
  t.device.push_back(kernel("adamw", start + 1000, start + 3000, 0, 8));
  t.device.push_back(kernel("all_reduce", start + 2000, start + 9000, 0, 9));
  t.device.back().kind = Activity::communication;
  t.device.back().bytes = 4096;
  Parsed p = parsed(t);
  std::map<std::string, Json> by_name;
  for (const Json& e : p.of("kernel")) by_name[e["name"]] = e;
  ASSERT_EQ(by_name.size(), 3u);
  EXPECT_EQ(by_name["matmul"]["args"]["stream"], 7);
  EXPECT_EQ(by_name["adamw"]["args"]["stream"], 8);
  const Json& collective = by_name["all_reduce[ncclKernel]"];
  EXPECT_EQ(collective["args"]["stream"], 9);
  EXPECT_EQ(collective["args"]["Collective name"], "all_reduce");
  EXPECT_EQ(collective["args"]["bytes"], 4096);
  std::set<int64_t> correlations;
  for (const auto& [name, e] : by_name) {
    correlations.insert(e["args"]["correlation"].get<int64_t>());
    EXPECT_EQ(e["tid"], e["args"]["stream"]);
  }
  EXPECT_EQ(correlations.size(), 3u);
  Overlap o = communication_overlap(t.device);
  EXPECT_EQ(o.communication_ns, 7000);
  EXPECT_EQ(o.overlapped_ns, 3000);
}

TEST(KinetoTrace, AnEmptyTraceIsAFileToo) {
  Json j = parsed({}).json;
  for (const Json& e : j["traceEvents"]) EXPECT_EQ(e["ph"], "M");
}

}  // namespace
}  // namespace sinter
