// The one exception type. No third-party header here: kernels throw it too. Formatting helpers are in core/check.h.
#pragma once
#include <stdexcept>
#include <string>

namespace sinter {

// The value is the process's exit code.
enum class ErrorKind : int { other = 1, usage = 2, memory = 3, numeric = 4, peer = 5 };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] void fail(ErrorKind kind, const std::string& message);  // adds the current range, if any

}  // namespace sinter
