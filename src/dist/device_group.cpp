#include "dist/device_group.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "backend/device.h"
#include "core/check.h"
#include "core/clock.h"
#include "ops/context.h"
#include "system/streams.h"

namespace sinter::dist {
namespace {

constexpr double look_s = 0.01;     // how often it looks
constexpr double gone_s = 0.1;      // a rank that has done its part may end before the device has come so far
constexpr double patience_s = 1.5;  // that the process has to ask for the error itself

double seconds_since(int64_t ns) { return double(steady_ns() - ns) / 1e9; }

}  // namespace

DeviceGroup::DeviceGroup(GroupSetting setting, std::unique_ptr<ProcessGroup> host)
    : Group(std::move(setting)), host_(std::move(host)) {}

void DeviceGroup::do_run(const Collective& what, const void* in, void* out, void* stream) {
  throw_if_failed();
  if (stream) enqueue(what, in, out, stream);
  else if (host_) host_->run(what, in, out, nullptr);
  else by_way_of_the_gpu(what, in, out);
}

void DeviceGroup::by_way_of_the_gpu(const Collective& what, const void* in, void* out) {
  DeviceBackend& gpu = backend_of(DeviceType::cuda);
  // A barrier, which moves nothing, is a sum of a number each.
  Collective c = what.elements ? what : Collective{CollectiveKind::all_reduce, ReduceKind::sum, DType::f32, 0, 1};
  int64_t share = c.bytes() / size();
  auto* p = static_cast<char*>(gpu.allocate(size_t(c.bytes())));
  if (!p) fail_with(ErrorKind::memory, "{}: no GPU memory is left for what goes to other hosts", text_of(c));
  void* stream = current_stream(DeviceType::cuda);
  bool gathers = c.kind == CollectiveKind::all_gather, scatters = c.kind == CollectiveKind::reduce_scatter;
  char *from = gathers ? p + rank() * share : p, *to = scatters ? p + rank() * share : p;
  if (what.elements) gpu.copy_from_host(from, in, size_t(gathers ? share : c.bytes()), stream);
  enqueue(c, from, to, stream);
  if (what.elements) gpu.copy_to_host(out, to, size_t(scatters ? share : c.bytes()), stream);
  else gpu.synchronize(stream);
  gpu.free(p);
  throw_if_failed();
}

void DeviceGroup::throw_if_failed() {
  if (!failed_.load()) return;
  told_ = true;
  throw Error(ErrorKind::peer, failure_);
}

uint32_t DeviceGroup::id_of(const Collective& what) {
  std::lock_guard lock(mutex_);
  auto it = std::find(known_.begin(), known_.end(), what);
  if (it == known_.end()) it = known_.insert(known_.end(), what);
  return uint32_t(it - known_.begin()) + 1;
}

std::optional<Collective> DeviceGroup::collective(uint32_t id) {
  std::lock_guard lock(mutex_);
  if (id == 0 || id > known_.size()) return {};
  return known_[id - 1];
}

void DeviceGroup::watch() {
  thread_ = std::thread([this] { look(); });
}
void DeviceGroup::stop_watching() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}
bool DeviceGroup::sleep(double seconds) {
  std::unique_lock lock(mutex_);
  return !ends_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stop_; });
}

void DeviceGroup::look() {
  cuda_backend();  // which binds this thread to the GPU
  cuda::DeviceProgress::Seen last;
  std::optional<Collective> latest;
  int64_t since = steady_ns();
  try {
    while (sleep(look_s)) {
      look_beside();
      cuda::DeviceProgress::Seen s = seen();
      if (!(s == last)) {
        since = steady_ns(), last = s;
        if (auto now = collective(s.current)) latest = now;
        if (latest) come_to(*latest, int64_t(s.finished) + (s.current ? 1 : 0), s.current != 0);
      }
      if (!s.current) continue;
      if (seconds_since(since) > gone_s)
        if (std::vector<int> gone = ended(); !gone.empty()) died(gone[0]);
      if (seconds_since(since) > setting().timeout_s) time_out();
    }
  } catch (const Error& e) {
    failure_ = e.what();
    failed_ = true;
    report_failure();
  }
}

void DeviceGroup::report_failure() {
  int64_t begin = steady_ns();
  do {
    try {
      if (seen().current) let_go();
    } catch (const Error&) {  // the first error is the one to report
    }
    if (told_ || seconds_since(begin) < patience_s) continue;
    say("sinter: error: " + failure_ + "\n");
    std::_Exit(int(ErrorKind::peer));
  } while (sleep(0.001));
}

}  // namespace sinter::dist
