#include "backend/cpu/side_stream.h"

#include <immintrin.h>
#include <utility>

#include "backend/cpu/thread_pool.h"

namespace sinter::cpu {

SideStream::~SideStream() {
  try {
    wait(submitted_);
  } catch (...) {  // nobody waited for what failed
  }
}

void SideStream::submit(Kernel kernel, const KernelCall& call) {
  ++submitted_;
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({kernel, &call});
  }
  add_aside({[](void* self) { static_cast<SideStream*>(self)->run_next(); }, this});
}

void SideStream::wait(int64_t calls) {
  while (over_.load(std::memory_order_acquire) < calls)
    if (!help_asides()) _mm_pause();
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void SideStream::run_next() {
  std::unique_lock lock(mutex_);
  Work work = queue_.front();
  queue_.pop_front();
  bool failed = error_ != nullptr;
  lock.unlock();
  try {
    if (!failed) work.kernel(*work.call);
  } catch (...) {
    lock.lock();
    error_ = std::current_exception();
    lock.unlock();
  }
  over_.fetch_add(1, std::memory_order_release);
}

}  // namespace sinter::cpu
