// Streams of the CPU beside the caller's, whose calls are over when they return.
//
// Note [Idle time]: a GEMM's last pieces keep few threads busy, and short kernels are over before all have joined.
// What need not be done at once (weights' updates, while the backward pass goes on) fills such gaps: a thread with
// nothing to do makes the next call of a side stream, and others help it, a range at a time, so that the caller's next
// call waits for a range at most. What is left is done by all when somebody waits for it.
//
// Note [Deferred waits]: a stream that is to wait for another only remembers it, and its next call begins when what it
// waits for is over. Nobody blocks the thread that submits, and a call that waits holds up only those after it in its
// own stream: while a collective waits for other ranks, the backward pass and updates of what has arrived go on.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "core/activity.h"

namespace sinter::cpu {

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void submit(Kernel kernel, const KernelCall& call, const CallLabel& label);  // the call must exist until it is over
  void wait_for(Stream& other, int64_t calls);  // what is submitted from now on waits for so many of the other's
  int64_t submitted() const { return submitted_; }
  bool is_over(int64_t calls) const { return over_.load(std::memory_order_acquire) >= calls; }
  // The caller waits until so many of the calls are over, and does what side streams have to do meanwhile. Rethrows
  // what one of them threw; those after it were not made.
  void wait(int64_t calls);

 protected:
  explicit Stream(int number) : number_(number) {}
  struct Item {
    Kernel kernel;
    const KernelCall* call;
    CallLabel label;
    std::vector<std::pair<Stream*, int64_t>> needs;
    bool is_ready() const;
  };
  virtual void add(Item item) = 0;
  void run(const Item& item);
  void finish() noexcept;  // in destructors: what was submitted is done first

 private:
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  int number_;                                      // as traces show it
  std::vector<std::pair<Stream*, int64_t>> needs_;  // of the next call
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  int64_t submitted_ = 0;  // by the one thread that uses the stream
  std::atomic<int64_t> over_{0};
};

// Fills idle time of the pool's threads (Note [Idle time]).
class SideStream final : public Stream {
 public:
  SideStream();
  ~SideStream() override { finish(); }

 private:
  void add(Item item) override;
};

// Has a thread of its own, which uses no other: communication and copies, which mostly wait.
class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(StreamRole role);
  ~ThreadStream() override;

 private:
  void add(Item item) override;
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool ends_ = false;
  std::thread thread_;
};

// What streams run is noted down between the two: all but the caller's own calls.
void record_streams(bool on);
std::vector<Activity> take_stream_record();

}  // namespace sinter::cpu
