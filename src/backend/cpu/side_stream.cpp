#include "backend/cpu/side_stream.h"

#include <immintrin.h>
#include <utility>

#include "backend/cpu/asides.h"

namespace sinter::cpu {

SideStream::~SideStream() {
  try {
    wait(submitted_);
  } catch (...) {  // nobody waited for what failed
  }
}

void SideStream::submit(Kernel kernel, const KernelCall& call) {
  ++submitted_;
  add_aside([this, kernel, &call] { run(kernel, call); });
}

void SideStream::wait(int64_t calls) {
  while (over_.load(std::memory_order_acquire) < calls)
    if (!help_asides()) _mm_pause();
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void SideStream::run(Kernel kernel, const KernelCall& call) {
  auto failed = [this] {
    std::lock_guard lock(mutex_);
    return error_ != nullptr;
  };
  try {
    if (!failed()) kernel(call);
  } catch (...) {
    std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  over_.fetch_add(1, std::memory_order_release);
}

}  // namespace sinter::cpu
