// Note [A trace others read]: the file follows Kineto, PyTorch's profiler, so that Perfetto, chrome://tracing and
// HolisticTraceAnalysis (HTA) open it. What they need beyond the format's own rules:
//
// - Times are microseconds with three decimals since baseTimeNanoseconds: a double cannot hold today's nanoseconds.
// - HTA finds the rank with the regular expression "rank":\s+(\d+), hence the blank after the colon, and takes the
//   first match, hence distributedInfo before anything else that might say rank.
// - HTA takes every event with a stream for a kernel. So kernels, copies and fills have one and nothing else has: not
//   the annotations on the device, not the calls. An event belongs to an iteration only if its stream is above 0; a
//   stream that was counted from 0 is written as 7, CUPTI's number of the default stream.
// - HTA joins a kernel to its launch by the correlation, and takes index 0 for "none": metadata stand first.
// - HTA knows four launches: cudaLaunchKernel, cudaLaunchKernelExC, cudaMemcpyAsync and cudaMemsetAsync. cuBLASLt calls
//   the driver directly; where no call of the runtime has a kernel's correlation, the driver's is written under the
//   runtime's name, with its own as "driver call". Versions are cut off: cudaLaunchKernel_v7000.
// - Copies and fills have names that begin with Memcpy and Memset. Communication kernels are known by NCCL's names:
//   our own collectives are written as all_reduce[ncclKernel].
// - Iterations are annotations ProfilerStep#N. Of several, HTA leaves the last one out.
// - On the CPU the ops are the kernels. Where they ran in several lanes (Note [Lanes] in compile/graph.h), or
//   collectives beside them, they are written once more as kernels with the lanes for streams; otherwise the file holds
//   ops, annotations and memory only.
// - An arrow (ac2g) leads from a call to the first thing it started; a graph's launch starts thousands.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>
#include <unistd.h>
#include <unordered_map>

#include "core/clock.h"
#include "core/json_string.h"
#include "profile/trace.h"

namespace sinter {
namespace {

constexpr int default_stream = 7;
constexpr int annotated_levels = 2;       // modules below a phase that are shown on the device
constexpr int below_processes = 5000000;  // sort index: devices stand below every process

bool by_begin(const RangeSpan& a, const RangeSpan& b) {
  return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;  // the outer one first
}

// Which ranges were open on a thread at a moment, outermost first. Moments must come in ascending order.
class OpenRanges {
 public:
  explicit OpenRanges(const std::vector<RangeSpan>& sorted) : spans_(sorted) {}

  const std::vector<size_t>& at(int64_t time, int64_t thread) {
    for (; next_ < spans_.size() && spans_[next_].begin_ns <= time; ++next_) {
      std::vector<size_t>& stack = open_[spans_[next_].thread];
      close(stack, spans_[next_].begin_ns);
      stack.push_back(next_);
    }
    std::vector<size_t>& stack = open_[thread];
    close(stack, time);
    return stack;
  }

 private:
  void close(std::vector<size_t>& stack, int64_t time) const {
    while (!stack.empty() && spans_[stack.back()].end_ns <= time) stack.pop_back();
  }
  const std::vector<RangeSpan>& spans_;
  size_t next_ = 0;
  std::unordered_map<int64_t, std::vector<size_t>> open_;
};

bool is_driver(const std::string& call) { return call.starts_with("cu") && !call.starts_with("cuda"); }

// cudaLaunchKernel_v7000, cuMemcpyAsync_ptsz: CUPTI's names tell the version of the interface.
std::string without_version(std::string name) {
  if (name.ends_with("_ptsz")) name.resize(name.size() - 5);
  size_t v = name.rfind("_v");
  if (v == std::string::npos || v + 2 == name.size()) return name;
  bool digits = std::all_of(name.begin() + long(v) + 2, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? name.substr(0, v) : name;
}

// The runtime's name for a launch by the driver, or an empty one.
std::string runtime_name(const std::string& call) {
  if (call == "cuLaunchKernel") return "cudaLaunchKernel";
  if (call == "cuLaunchKernelEx") return "cudaLaunchKernelExC";
  if (call.starts_with("cuMemcpy") && call.find("Async") != std::string::npos) return "cudaMemcpyAsync";
  if (call.starts_with("cuMemset")) return "cudaMemsetAsync";
  return "";
}

const char* category_of(const Activity& a) {
  switch (a.kind) {
    case Activity::copy: return "gpu_memcpy";
    case Activity::fill: return "gpu_memset";
    default: return "kernel";
  }
}

std::string exported_name(const Activity& a) {
  if (is_communication(a) && a.name.find("nccl") == std::string::npos) return a.name + "[ncclKernel]";
  const char* prefix = a.kind == Activity::copy ? "Memcpy" : a.kind == Activity::fill ? "Memset" : "";
  return a.name.starts_with(prefix) ? a.name : fmt::format("{} {}", prefix, a.name);
}

int stream_of(const Activity& a) { return a.stream > 0 ? a.stream : default_stream; }

bool is_op(uint32_t range) { return range_of(range).kind == RangeKind::op; }

// Phases, and modules near enough to one.
bool shown_on_device(const RangeNode& n) {
  int levels = 0;
  for (const RangeNode* p = &n; p; p = p->parent, ++levels) {
    if (p->kind == RangeKind::phase) return levels <= annotated_levels;
    if (p->kind == RangeKind::op) return false;
  }
  return false;
}

class KinetoWriter {
 public:
  explicit KinetoWriter(const Trace& trace) : trace_(trace), spans_(trace.ranges), pid_(getpid()) {
    std::sort(spans_.begin(), spans_.end(), by_begin);
    main_thread_ = spans_.empty() ? pid_ : spans_.front().thread;
    base_ = first_begin();
    for (const Activity& a : trace.device) lanes_ = lanes_ || (trace.on_host && a.stream > 0);
    if (!trace.on_host) link();
    else activity_op_.resize(trace.device.size());
  }

  std::string write() {
    out_.reserve(4096 + 400 * (trace_.device.size() + trace_.calls.size() + spans_.size()));
    header();
    metadata();
    steps();
    for (size_t i = 0; i < spans_.size(); ++i) range(i);
    if (!trace_.on_host) {
      for (size_t i = 0; i < trace_.calls.size(); ++i) call(i);
      for (size_t i = 0; i < trace_.device.size(); ++i) activity(i);
      annotations();
      arrows();
    } else if (lanes_) {
      for (size_t i = 0; i < trace_.device.size(); ++i) activity(i);
    }
    memory();
    add("\n  ],\n  \"traceName\": \"sinter_rank{}.json\"\n}}\n", trace_.rank);
    return std::move(out_);
  }

 private:
  template <class... Args> void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
  }

  int64_t first_begin() const {
    int64_t first = INT64_MAX;
    for (const RangeSpan& s : spans_) first = std::min(first, s.begin_ns);
    for (const Activity& a : trace_.device) first = std::min(first, a.begin_ns);
    for (const Activity& a : trace_.calls) first = std::min(first, a.begin_ns);
    for (auto [begin, end] : trace_.steps) first = std::min(first, begin);
    for (auto [time, bytes] : trace_.memory) first = std::min(first, time);
    return first == INT64_MAX ? 0 : first;
  }

  // Who launched what, and inside which ranges.
  void link() {
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      const Activity& c = trace_.calls[i];
      if (!c.correlation) continue;
      auto [it, added] = call_of_.try_emplace(c.correlation, i);
      if (!added && is_driver(trace_.calls[it->second].name)) it->second = i;
    }
    for (size_t i = 0; i < trace_.device.size(); ++i) {
      const Activity& a = trace_.device[i];
      if (!a.correlation) continue;
      auto [it, added] = first_started_.try_emplace(a.correlation, i);
      if (!added && a.begin_ns < trace_.device[it->second].begin_ns) it->second = i;
    }
    call_op_ = ops_around(
        trace_.calls, [](const Activity& c) { return &c; }, [](size_t, const auto&) {});
    activity_op_ = ops_around(
        trace_.device, [this](const Activity& a) { return launch_of(a); },
        [this](size_t i, const std::vector<size_t>& open) { widen_annotations(trace_.device[i], open); });
  }

  const Activity* launch_of(const Activity& a) const {
    auto it = call_of_.find(a.correlation);
    return it == call_of_.end() ? &a : &trace_.calls[it->second];
  }

  // The External id of the innermost op around each activity's moment, or 0. Ids are positions in spans_, from 1.
  template <class Moment, class Visit>
  std::vector<size_t> ops_around(const std::vector<Activity>& all, Moment moment, Visit visit) const {
    std::vector<size_t> order(all.size()), op(all.size());
    for (size_t i = 0; i < all.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return moment(all[a])->begin_ns < moment(all[b])->begin_ns; });
    OpenRanges ranges(spans_);
    for (size_t i : order) {
      const Activity* at = moment(all[i]);
      const std::vector<size_t>& open = ranges.at(at->begin_ns, at->thread ? at->thread : main_thread_);
      auto innermost = std::find_if(open.rbegin(), open.rend(), [&](size_t s) { return is_op(spans_[s].range); });
      op[i] = innermost == open.rend() ? 0 : *innermost + 1;
      visit(i, open);
    }
    return op;
  }

  void widen_annotations(const Activity& a, const std::vector<size_t>& open) {
    for (size_t s : open) {
      if (!shown_on_device(range_of(spans_[s].range))) continue;
      auto [it, added] = annotations_.try_emplace({s, a.device, stream_of(a)}, a.begin_ns, a.end_ns);
      if (added) continue;
      it->second.first = std::min(it->second.first, a.begin_ns);
      it->second.second = std::max(it->second.second, a.end_ns);
    }
  }

  void header() {
    add("{{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": "
        "{}}},\n",
        trace_.world_size > 1 ? "sinter" : "none", trace_.rank, trace_.world_size);
    out_ += "  \"deviceProperties\": [";
    if (!trace_.on_host) {
      out_ += "{\"id\": 0, \"name\": ";
      append_json_string(out_, trace_.device_name);
      add(", \"totalGlobalMem\": {}, \"computeMajor\": {}, \"computeMinor\": {}, \"numSms\": {}}}",
          trace_.device_memory, trace_.compute_capability / 10, trace_.compute_capability % 10, trace_.multiprocessors);
    }
    add("],\n  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {},\n  \"traceEvents\": [", unix_ns(base_));
  }

  void microseconds(const char* key, int64_t ns) { add(", \"{}\": {}.{:03}", key, ns / 1000, ns % 1000); }

  // Everything up to the arguments, which the caller adds before close().
  void open(char phase, std::string_view name, const char* category, int64_t pid, int64_t tid, int64_t time) {
    add("{}{{\"ph\": \"{}\", \"name\": ", first_event_ ? "\n    " : ",\n    ", phase);
    append_json_string(out_, name);
    first_event_ = false;
    if (category) add(", \"cat\": \"{}\"", category);
    add(", \"pid\": {}, \"tid\": {}", pid, tid);
    microseconds("ts", time - base_);
  }
  void slice(std::string_view name, const char* category, int64_t pid, int64_t tid, int64_t begin, int64_t end) {
    open('X', name, category, pid, tid, begin);
    microseconds("dur", std::max<int64_t>(end - begin, 0));
    out_ += ", \"args\": {";
  }
  void close() { out_ += "}}"; }

  void path_argument(uint32_t range, const char* separator) {
    auto [it, added] = paths_.try_emplace(range);
    if (added) append_json_string(it->second, range_of(range).path());
    add("{}\"range\": {}", separator, it->second);
  }

  template <class T> void describe(const char* what, const char* key, int64_t pid, int64_t tid, const T& value) {
    open('M', what, nullptr, pid, tid, base_);
    add(", \"args\": {{\"{}\": ", key);
    if constexpr (std::is_integral_v<T>) add("{}", value);
    else append_json_string(out_, value);
    close();
  }
  void describe_process(int64_t pid, const std::string& label, int64_t order) {
    describe("process_name", "name", pid, 0, std::string("sinter"));
    describe("process_labels", "labels", pid, 0, label);
    describe("process_sort_index", "sort_index", pid, 0, order);
  }
  void describe_track(int64_t pid, int64_t tid, const char* what) {
    describe("thread_name", "name", pid, tid, fmt::format("{} {}", what, tid));
    describe("thread_sort_index", "sort_index", pid, tid, tid);
  }

  void metadata() {
    describe_process(pid_, "CPU", pid_);
    std::set<int64_t> threads = {main_thread_};
    for (const RangeSpan& s : spans_) threads.insert(s.thread);
    if (!trace_.on_host)
      for (const Activity& c : trace_.calls) threads.insert(thread_of(c));
    for (int64_t t : threads) describe_track(pid_, t, "thread");
    if (lanes_) {
      describe_process(0, "CPU lanes", below_processes);
      const char* const names[] = {"main lane", "side lane", "communication lane", "copy lane"};
      for (int i = 0; i < 4; ++i) {
        describe("thread_name", "name", 0, default_stream + i, std::string(names[i]));
        describe("thread_sort_index", "sort_index", 0, default_stream + i, default_stream + i);
      }
    }
    if (trace_.on_host) return;
    std::map<int, std::set<int>> streams;
    for (const Activity& a : trace_.device) streams[a.device].insert(stream_of(a));
    for (const auto& [device, ids] : streams) {
      describe_process(device, fmt::format("GPU {}", device), below_processes + device);
      for (int s : ids) describe_track(device, s, "stream");
    }
  }

  void steps() {
    for (size_t i = 0; i < trace_.steps.size(); ++i) {
      auto [begin, end] = trace_.steps[i];
      slice(fmt::format("ProfilerStep#{}", i), "user_annotation", pid_, main_thread_, begin, end);
      close();
    }
  }

  void range(size_t i) {
    const RangeSpan& s = spans_[i];
    const RangeNode& node = range_of(s.range);
    bool op = node.kind == RangeKind::op;
    slice(node.name, op ? "cpu_op" : "user_annotation", pid_, s.thread, s.begin_ns, s.end_ns);
    if (op) add("\"External id\": {}", i + 1);
    path_argument(s.range, op ? ", " : "");
    close();
  }

  int64_t thread_of(const Activity& call) const { return call.thread ? call.thread : main_thread_; }

  void call(size_t i) {
    const Activity& c = trace_.calls[i];
    std::string name = without_version(c.name), alias;
    bool launches = c.correlation && first_started_.contains(c.correlation) && call_of_.at(c.correlation) == i;
    if (launches && is_driver(name)) alias = runtime_name(name);
    bool driver = is_driver(name) && alias.empty();
    slice(alias.empty() ? name : alias, driver ? "cuda_driver" : "cuda_runtime", pid_, thread_of(c), c.begin_ns,
          c.end_ns);
    add("\"External id\": {}", call_op_[i]);
    if (c.correlation) add(", \"correlation\": {}", c.correlation);
    if (!alias.empty()) add(", \"driver call\": \"{}\"", name);
    close();
  }

  void activity(size_t i) {
    const Activity& a = trace_.device[i];
    slice(exported_name(a), category_of(a), a.device, stream_of(a), a.begin_ns, a.end_ns);
    add("\"External id\": {}, \"device\": {}, \"context\": 1, \"stream\": {}", activity_op_[i], a.device, stream_of(a));
    if (a.correlation || trace_.on_host) add(", \"correlation\": {}", trace_.on_host ? i + 1 : a.correlation);
    if (a.kind == Activity::communication) {
      add(", \"Collective name\": \"{}\", \"Group size\": {}, \"bytes\": {}", a.name, trace_.world_size, a.bytes);
    } else if (a.kind == Activity::kernel) {
      if (a.grid[0])
        add(", \"grid\": [{}, {}, {}], \"block\": [{}, {}, {}]", a.grid[0], a.grid[1], a.grid[2], a.block[0],
            a.block[1], a.block[2]);
      add(", \"registers per thread\": {}, \"shared memory\": {}", a.registers, a.shared_bytes);
    } else {
      add(", \"bytes\": {}", a.bytes);
      if (a.duration_ns() > 0) add(", \"memory bandwidth (GB/s)\": {:.3f}", double(a.bytes) / double(a.duration_ns()));
    }
    path_argument(a.range, ", ");
    close();
  }

  void annotations() {
    for (const auto& [key, time] : annotations_) {
      auto [span, device, stream] = key;
      slice(range_of(spans_[span].range).name, "gpu_user_annotation", device, stream, time.first, time.second);
      path_argument(spans_[span].range, "");
      close();
    }
  }

  void arrows() {
    for (auto [correlation, started] : first_started_) {
      auto it = call_of_.find(correlation);
      if (it == call_of_.end()) continue;
      const Activity &from = trace_.calls[it->second], &to = trace_.device[started];
      open('s', "ac2g", "ac2g", pid_, thread_of(from), from.begin_ns);
      add(", \"id\": {}}}", correlation);
      open('f', "ac2g", "ac2g", to.device, stream_of(to), to.begin_ns);
      add(", \"id\": {}, \"bp\": \"e\"}}", correlation);
    }
  }

  void memory() {
    for (auto [time, bytes] : trace_.memory) {
      open('C', "[memory]", nullptr, trace_.on_host ? pid_ : 0, 0, time);
      add(", \"args\": {{\"Total Allocated\": {}", bytes);
      close();
    }
  }

  using Annotated = std::tuple<size_t, int, int>;  // span, device, stream

  const Trace& trace_;
  std::vector<RangeSpan> spans_;
  int64_t pid_, main_thread_ = 0, base_ = 0;
  std::string out_;
  bool first_event_ = true;
  std::unordered_map<uint32_t, std::string> paths_;  // in quotes
  std::unordered_map<uint32_t, size_t> call_of_;     // correlation → call, the runtime's rather than the driver's
  std::map<uint32_t, size_t> first_started_;         // correlation → what began first on the device
  std::vector<size_t> call_op_, activity_op_;        // External ids
  bool lanes_ = false;                               // of the CPU, shown as streams
  std::map<Annotated, std::pair<int64_t, int64_t>> annotations_;  // begin and end on the device
};

}  // namespace

std::string to_kineto(const Trace& trace) { return KinetoWriter(trace).write(); }

}  // namespace sinter
