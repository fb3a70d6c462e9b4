#include "plan/simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sinter::plan {
namespace {

struct Lane {
  std::vector<int> tasks;  // in their order
  size_t at = 0;
  bool running = false;
  double left = 0, began = 0;  // seconds of work of the task that runs
};

}  // namespace

Timeline simulate(const Work& work, const Machine& m, const Network& network, const Conditions& c) {
  Timeline line;
  std::array<Lane, compile::max_lanes> lanes;
  std::vector<double> issued(work.tasks.size(), 0);  // when the host has made the call
  double host = 0;
  for (size_t i = 0; i < work.tasks.size(); ++i) {
    lanes[size_t(work.tasks[i].lane)].tasks.push_back(int(i));
    if (work.one_by_one) issued[i] = host += m.host_call_s * c.slow_device;
  }
  std::vector<bool> over(work.tasks.size(), false);
  double now = 0;
  auto is_collective = [&](const Lane& l) { return work.tasks[size_t(l.tasks[l.at])].kind == Task::collective; };
  for (;;) {
    // What can begin now begins; a task that only waits for the host is due later.
    double next = std::numeric_limits<double>::infinity();
    bool any = false;
    for (Lane& l : lanes) {
      if (l.running || l.at == l.tasks.size()) continue;
      int i = l.tasks[l.at];
      const Task& t = work.tasks[size_t(i)];
      if (!std::all_of(t.waits.begin(), t.waits.end(), [&](int w) { return over[size_t(w)]; })) continue;
      if (issued[size_t(i)] > now) {
        next = std::min(next, issued[size_t(i)]);
        continue;
      }
      l.running = true, l.began = now;
      l.left = seconds_of(t, work.dtype, m, network) * (t.kind == Task::collective ? c.slow_link : c.slow_device);
    }
    int computing = 0, communicating = 0;
    for (const Lane& l : lanes)
      if (l.running) ++(is_collective(l) ? communicating : computing);
    any = computing + communicating > 0;
    if (!any && std::isinf(next)) break;  // all is done
    double rate = computing ? (1 - (communicating ? m.overlap : 0)) / computing : 0;
    for (const Lane& l : lanes)
      if (l.running) next = std::min(next, now + (is_collective(l) ? l.left : l.left / rate));
    double passed = next - now;
    if (computing) line.busy += passed;
    if (communicating) line.communication += passed;
    if (communicating && !computing) line.exposed += passed;
    for (Lane& l : lanes) {
      if (!l.running) continue;
      l.left -= passed * (is_collective(l) ? 1 : rate);
      if (l.left > 1e-12 * std::max(1.0, next)) continue;  // the clock has 53 bits
      line.pieces.push_back({l.tasks[l.at], l.began, next});
      over[size_t(l.tasks[l.at])] = true;
      l.running = false, ++l.at;
    }
    now = next;
  }
  line.seconds = now;
  return line;
}

Trace trace_of(const Work& work, const Timeline& line, const Machine& m, int64_t devices) {
  Trace t;
  t.device_name = m.name + " (predicted)";
  t.device_memory = int64_t(m.memory_bytes);
  t.world_size = int(devices);
  t.on_host = m.target.type == DeviceType::cpu;
  auto ns = [](double s) { return int64_t(std::llround(s * 1e9)); };
  for (const Piece& p : line.pieces) {
    const Task& task = work.tasks[size_t(p.task)];
    Activity a;
    a.begin_ns = ns(p.begin), a.end_ns = ns(p.end);
    a.stream = task.lane;
    a.name = task.name, a.range = task.range;
    if (task.kind == Task::collective) a.kind = Activity::communication, a.bytes = int64_t(task.bytes);
    a.correlation = uint32_t(p.task) + 1;
    t.device.push_back(a);
  }
  t.steps.emplace_back(0, ns(line.seconds));
  return t;
}

}  // namespace sinter::plan
