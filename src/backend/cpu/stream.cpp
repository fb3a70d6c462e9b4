#include "backend/cpu/stream.h"

#include <immintrin.h>
#include <utility>

#include "backend/cpu/asides.h"
#include "core/clock.h"

namespace sinter::cpu {
namespace {

constexpr int spins = 2000;  // some ten microseconds, before a thread that waits goes to sleep

struct Record {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::vector<Activity> activities;
};
Record& record() {
  static Record r;
  return r;
}

// As the trace writer counts them: CUPTI's number of the default stream is 7, and ours stand beside it.
int number_of(StreamRole role) { return role == StreamRole::communication ? 9 : 10; }
constexpr int side_number = 8;

}  // namespace

bool Stream::Item::is_ready() const {
  for (const auto& [stream, calls] : needs)
    if (!stream->is_over(calls)) return false;
  return true;
}

void Stream::submit(Kernel kernel, const KernelCall& call, const CallLabel& label) {
  if (has_failed() && is_over(submitted_)) {
    std::lock_guard lock(mutex_);
    failed_.store(error_ != nullptr);  // one that was reported is over and done with
  }
  ++submitted_;
  add({kernel, &call, label, std::exchange(needs_, {})});
}

void Stream::wait_for(Stream& other, int64_t calls) {
  if (&other != this && (!other.is_over(calls) || other.has_failed())) needs_.emplace_back(&other, calls);
}

void Stream::wait(int64_t calls) {
  for (int spun = 0; !is_over(calls); ++spun) {
    uint32_t seen = pool_news();
    if (is_over(calls)) break;
    if (help_asides()) spun = 0;
    else if (spun < spins) _mm_pause();
    else wait_for_pool_news(seen);
  }
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Stream::finish() noexcept {
  try {
    wait(submitted_);
  } catch (...) {  // nobody waited for what failed
  }
}

// A call that needs what another stream failed to do is not made either: that stream's error is the one to report.
void Stream::run(const Item& item) {
  bool make = !has_failed();
  for (const auto& [stream, calls] : item.needs) make = make && !stream->has_failed();
  if (make) try {
      int64_t begin = record().on.load(std::memory_order_relaxed) ? steady_ns() : 0;
      item.kernel(*item.call);
      if (begin) {
        Activity a;
        a.kind = item.label.communication ? Activity::communication : Activity::kernel;
        a.name = item.label.name;
        a.begin_ns = begin, a.end_ns = steady_ns();
        a.range = item.label.range;
        if (item.label.communication) a.bytes = numel(item.call->in[0]) * size_of(item.call->in[0].dtype);
        a.stream = number_;
        std::lock_guard lock(record().mutex);
        record().activities.push_back(std::move(a));
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
  over_.fetch_add(1, std::memory_order_release);
  tell_pool_news();
}

SideStream::SideStream() : Stream(side_number) {}

void SideStream::add(Item item) {
  auto shared = std::make_shared<Item>(std::move(item));
  add_aside({[this, shared] { run(*shared); }, [shared] { return shared->is_ready(); }});
}

ThreadStream::ThreadStream(StreamRole role) : Stream(number_of(role)), thread_([this] { work(); }) {}

ThreadStream::~ThreadStream() {
  finish();
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ThreadStream::add(Item item) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void ThreadStream::work() {
  use_no_other_threads();
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    for (uint32_t seen = pool_news(); !item.is_ready(); seen = pool_news()) wait_for_pool_news(seen);
    run(item);
  }
}

void record_streams(bool on) { record().on.store(on); }

std::vector<Activity> take_stream_record() {
  std::lock_guard lock(record().mutex);
  return std::exchange(record().activities, {});
}

}  // namespace sinter::cpu
