// A result's configuration as people read it, from the record.
#pragma once
#include <fmt/format.h>

#include "lab/json.h"

namespace sinter::lab {

inline std::string size_name(const Json& r) {
  if (r.contains("head_dim"))
    return fmt::format("{} attention, {} × d {}", r.value("attention", "?"), r.value("heads", 0),
                       r.value("head_dim", 0));
  if (r.contains("size")) return r["size"];
  return fmt::format("{}×{}, {} heads, d_ff {}", r.value("layers", 0), r.value("d_model", 0), r.value("heads", 0),
                     r.value("d_ff", 0));
}
inline std::string config_text(const Json& r) {
  return fmt::format("{}, batch {}, ctx {}, {}, {}", size_name(r), r.value("batch", 0), r.value("ctx", 0),
                     r.value("dtype", "?"), r.value("pass", "?"));
}
inline std::string passes_text(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "pass" : "passes"); }

}  // namespace sinter::lab
