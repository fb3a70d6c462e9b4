// The clock that every event, host or device, is dated by.
#pragma once
#include <chrono>
#include <cstdint>

namespace sinter {

inline int64_t steady_ns() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// As time of day. The difference of the clocks is taken once, so that everything one process writes agrees.
inline int64_t unix_ns(int64_t steady) {
  static const int64_t difference = [] {
    auto day = std::chrono::system_clock::now().time_since_epoch();
    return int64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(day).count()) - steady_ns();
  }();
  return steady + difference;
}

}  // namespace sinter
