// A stream of the CPU beside the caller's: its calls are run in their order, in time that the caller's
// leave the pool's threads idle.
//
// Note [Idle time]: a GEMM's last pieces keep few threads busy, and short kernels are over before all have joined.
// What need not be done at once (weights' updates, while the backward pass goes on) fills such gaps: a thread with
// nothing to do makes the next call of the stream, and others help it, a range at a time, so that the caller's next
// call waits for a range at most. What is left is done by all when somebody waits for it.
#pragma once
#include <atomic>
#include <exception>
#include <mutex>

#include "backend/kernels.h"

namespace sinter::cpu {

class SideStream {
 public:
  SideStream() = default;
  ~SideStream();  // what was submitted is done first
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  void submit(Kernel kernel, const KernelCall& call);  // the call must exist until it is over
  int64_t submitted() const { return submitted_; }
  // Until so many of the calls are over; the caller helps. Rethrows what one of them
  // threw; those after it were not made.
  void wait(int64_t calls);

 private:
  void run(Kernel kernel, const KernelCall& call);

  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t submitted_ = 0;  // by the one thread that uses the stream
  std::atomic<int64_t> over_{0};
};

}  // namespace sinter::cpu
