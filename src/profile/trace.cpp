#include "profile/trace.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "core/clock.h"

namespace sinter {
namespace {

int64_t this_thread() {
  thread_local const int64_t id = gettid();
  return id;
}

struct Interval {
  int64_t begin, end;
};

// Time in which at least one of them ran, as disjoint intervals in order.
std::vector<Interval> united(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> disjoint;
  for (Interval i : all)
    if (disjoint.empty() || i.begin > disjoint.back().end) disjoint.push_back(i);
    else disjoint.back().end = std::max(disjoint.back().end, i.end);
  return disjoint;
}

int64_t length(const std::vector<Interval>& disjoint) {
  int64_t sum = 0;
  for (Interval i : disjoint) sum += i.end - i.begin;
  return sum;
}

int64_t length_of_both(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  int64_t sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<int64_t>(0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    if (a[i].end < b[j].end) ++i;
    else ++j;
  }
  return sum;
}

bool moves_memory(const Activity& a) {
  return a.kind != Activity::kernel || a.name.starts_with("Memcpy") || a.name.starts_with("Memset");
}

}  // namespace

void RangeRecorder::entered(const RangeNode& range) {
  std::lock_guard lock(mutex_);
  open_.push_back({range.id, steady_ns(), 0, this_thread()});
}

// Ranges of a thread nest: the one that is left is the last that it entered.
void RangeRecorder::left(const RangeNode&) {
  int64_t end = steady_ns(), thread = this_thread();
  std::lock_guard lock(mutex_);
  auto last = std::find_if(open_.rbegin(), open_.rend(), [&](const RangeSpan& s) { return s.thread == thread; });
  if (last == open_.rend()) return;  // entered before the recorder was there
  last->end_ns = end;
  spans_.push_back(*last);
  open_.erase(std::next(last).base());
}

std::vector<RangeSpan> RangeRecorder::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

DeviceTime device_time(const std::vector<Activity>& device) {
  std::vector<Interval> all;
  for (const Activity& a : device) all.push_back({a.begin_ns, a.end_ns});
  std::vector<Interval> busy = united(std::move(all));
  DeviceTime t;
  if (busy.empty()) return t;
  t.span_ns = busy.back().end - busy.front().begin;
  t.busy_ns = length(busy);
  t.gap_ns = t.span_ns - t.busy_ns;
  t.gaps = int64_t(busy.size()) - 1;
  for (size_t i = 1; i < busy.size(); ++i)
    t.longest_gap_ns = std::max(t.longest_gap_ns, busy[i].begin - busy[i - 1].end);
  return t;
}

bool is_communication(const Activity& a) {
  return a.kind == Activity::communication || a.name.starts_with("nccl") ||
         a.name.find("ncclKernel") != std::string::npos || a.name.find("exchange_kernel") != std::string::npos;
}

Overlap communication_overlap(const std::vector<Activity>& device) {
  std::vector<Interval> communication, compute;
  for (const Activity& a : device) {
    if (!is_communication(a) && moves_memory(a)) continue;  // neither, says HTA
    (is_communication(a) ? communication : compute).push_back({a.begin_ns, a.end_ns});
  }
  communication = united(std::move(communication)), compute = united(std::move(compute));
  return {length(communication), length_of_both(communication, compute)};
}

}  // namespace sinter
