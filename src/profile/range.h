// Named ranges: phase × module path × op, e.g. step/backward/layers.7/attn. Entered once and read by everything that
// wants to say where something happened: memory events, error messages, the profiler.
#pragma once
#include <string>

namespace sinter {

class Range {
 public:
  explicit Range(const char* name);         // the name must outlive the range (a literal, or an interned string)
  explicit Range(const std::string& name);  // interned
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  static std::string path();  // "step/forward/layers.3/attn", or empty
};

}  // namespace sinter
