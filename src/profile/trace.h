// A stretch of execution, on the host and on the device, and its export for Perfetto, chrome://tracing and
// HolisticTraceAnalysis.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "core/activity.h"
#include "core/range.h"

namespace sinter {

// A range that was entered, and left again, on the host.
struct RangeSpan {
  uint32_t range;
  int64_t begin_ns, end_ns, thread;
};

// Collects them while it lives.
class RangeRecorder : public RangeListener {
 public:
  void entered(const RangeNode& range) override;
  void left(const RangeNode& range) override;
  std::vector<RangeSpan> take();  // complete ones, in the order in which they ended

 private:
  std::mutex mutex_;  // ranges belong to threads, but all of them report here
  std::vector<RangeSpan> open_;
  std::vector<RangeSpan> spans_;
};

struct Trace {
  std::string device_name;
  int64_t device_memory = 0;
  int multiprocessors = 0, compute_capability = 0;
  bool on_host = false;  // CPU: the ops are the kernels, and lanes the streams
  int rank = 0, world_size = 1;

  std::vector<Activity> device;                     // kernels, copies, fills
  std::vector<Activity> calls;                      // runtime calls
  std::vector<RangeSpan> ranges;                    // phases, modules, ops
  std::vector<std::pair<int64_t, int64_t>> steps;   // begin and end of each pass, on the host
  std::vector<std::pair<int64_t, int64_t>> memory;  // time and bytes allocated from then on
};

// Kineto's conventions (Note [A trace others read] in trace_writer.cpp).
std::string to_kineto(const Trace& trace);

// Where a device's time went between two moments.
struct DeviceTime {
  int64_t span_ns = 0;  // from the first begin to the last end
  int64_t busy_ns = 0;  // something ran: overlapping kernels count once
  int64_t gap_ns = 0;   // nothing ran; busy + gaps = span
  int64_t gaps = 0;     // how many
  int64_t longest_gap_ns = 0;
};
DeviceTime device_time(const std::vector<Activity>& device);

// Communication overlapped with compute, as HolisticTraceAnalysis defines it: time in which both kinds of kernel run ÷
// time in which communication runs. What is left of it is exposed. Kernels of libraries are recognised by name, as HTA
// does.
struct Overlap {
  int64_t communication_ns = 0, overlapped_ns = 0;
};
Overlap communication_overlap(const std::vector<Activity>& device);
bool is_communication(const Activity& a);

}  // namespace sinter
