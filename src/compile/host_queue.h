// Calls what it is given one after the other, on a thread of its own.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace sinter::compile {

class HostQueue {
 public:
  HostQueue() = default;
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  int64_t add(std::function<void()> action);  // its number; the thread begins with the first
  // Until so many are over; throws what one of them has thrown. Those after it are dropped.
  void wait(int64_t number);
  void wait_for_all() { wait(added_); }
  void give_up() noexcept;  // waits for the one that runs, drops the rest and what was thrown

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  int64_t added_ = 0, over_ = 0;
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace sinter::compile
