#include "compile/host_queue.h"

#include <utility>

namespace sinter::compile {

HostQueue::~HostQueue() {
  give_up();
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int64_t HostQueue::add(std::function<void()> action) {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  std::lock_guard lock(mutex_);
  if (error_) return ++over_, ++added_;  // it would come after one that has failed
  queue_.push_back(std::move(action));
  changed_.notify_all();
  return ++added_;
}

void HostQueue::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_ >= number; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void HostQueue::give_up() noexcept {
  std::unique_lock lock(mutex_);
  over_ += int64_t(queue_.size());
  queue_.clear();
  changed_.wait(lock, [&] { return over_ >= added_; });
  error_ = nullptr;
}

void HostQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    std::function<void()> action = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      action();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    ++over_;
    if (thrown) {
      if (!error_) error_ = thrown;
      over_ += int64_t(queue_.size());
      queue_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace sinter::compile
