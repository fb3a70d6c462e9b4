// So many CPU threads for as long as it lives.
#pragma once
#include "backend/cpu/thread_pool.h"

namespace sinter {

struct Threads {
  int before = cpu::threads();
  explicit Threads(int n) { cpu::set_threads(n); }
  ~Threads() { cpu::set_threads(before); }
};

}  // namespace sinter
