// What the store's two sides have in common: sockets, moments, messages.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/clock.h"

namespace sinter::dist::store {

inline constexpr std::string_view magic = "sinter store 1";
inline constexpr size_t largest_message = size_t(64) << 20, largest_hello = 4096, largest_welcome = 16;

enum class Op : int64_t { set, get, add };
enum class Answer : int64_t { welcome, other_job, done, timed_out, not_a_number };

inline constexpr int64_t never = std::numeric_limits<int64_t>::max();

inline int64_t in_seconds(double s) { return steady_ns() + int64_t(1e9 * std::clamp(s, 0.0, 1e8)); }

inline int ms_until(int64_t deadline) {
  int64_t left = std::max<int64_t>(0, deadline - steady_ns());
  return int(std::min<int64_t>(left / 1000000 + (left % 1000000 > 0), 60000));
}

inline void sleep_s(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// ---- Messages: a length, then numbers and texts, each text after its own length ----

class Message {
 public:
  Message& put(int64_t n) { return put_bytes(&n, sizeof n); }
  Message& put(std::string_view text) { return put(int64_t(text.size())).put_bytes(text.data(), text.size()); }
  std::string sealed() const {
    uint32_t size = uint32_t(bytes_.size());
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + bytes_;
  }
  size_t size() const { return bytes_.size(); }

 private:
  Message& put_bytes(const void* p, size_t n) {
    bytes_.append(static_cast<const char*>(p), n);
    return *this;
  }
  std::string bytes_;
};

// What is not there reads as 0 or as nothing; valid() says so.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  int64_t number() {
    int64_t n = 0;
    if (take(sizeof n)) std::memcpy(&n, taken_.data(), sizeof n);
    return n;
  }
  std::string_view text() {
    int64_t n = number();
    return n >= 0 && take(size_t(n)) ? taken_ : (valid_ = false, std::string_view());
  }
  bool valid() const { return valid_; }

 private:
  bool take(size_t n) {
    valid_ = valid_ && n <= rest_.size();
    if (!valid_) return false;
    taken_ = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return true;
  }
  std::string_view rest_, taken_;
  bool valid_ = true;
};

inline size_t sealed_size(const std::string& bytes) {
  uint32_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size;
}

}  // namespace sinter::dist::store
