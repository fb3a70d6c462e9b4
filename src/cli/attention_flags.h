// The flags that say which attention to run and how: the same for every command that runs it alone.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "lab/attention/work.h"

namespace sinter::cli {

// Kept as text and parsed by configs(), so that every complaint names its flag.
struct AttentionFlags {
  std::string batch = "8", heads = "1", kv_heads, ctx = "1024", head_dim = "64", dtype = "fp32";
  std::string pass = "forward-backward", attention = "auto", mode = "eager", passes, tile, device, seed = "0",
              warmup = "5", steps = "10";
  bool full = false, deterministic = false;

  DeviceType where() const;
  // Every combination, checked. What is compared varies fastest: deterministic or not (where both are wanted), the compiler's passes, mode,
  // tile, attention, dtype.
  enum class Determinism { as_asked, compared };
  std::vector<lab::AttentionConfig> configs(Determinism determinism = Determinism::as_asked) const;
};
void add_attention_flags(CLI::App& command, AttentionFlags& flags);
void add_mode_flags(CLI::App& command, AttentionFlags& flags);  // for commands that can run it compiled

}  // namespace sinter::cli
