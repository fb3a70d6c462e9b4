// check(condition, "message {}", …): refuses bad input with a usage error. Messages name the values and the remedy.
#pragma once
#include <fmt/format.h>

#include "core/error.h"

namespace sinter {

template <class... Args> [[noreturn]] void fail_with(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  fail(kind, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
[[gnu::always_inline]] inline void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    fail_with(ErrorKind::usage, text, std::forward<Args>(args)...);
}

}  // namespace sinter
