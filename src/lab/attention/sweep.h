// The flags and lists that say which attention to run and how: the same for every command that runs it alone.
#pragma once
#include "lab/attention/work.h"
#include "lab/flags.h"

namespace sinter::lab {

struct AttentionSweep {
  std::vector<int64_t> batch, heads, kv_heads, ctx, head_dim, tile;
  std::vector<std::string> dtype, attention, pass, mode, passes;
  std::optional<std::string> device;
  std::optional<int64_t> warmup, steps;
  uint64_t seed = 0;
  bool full = false, deterministic = false;

  // Calls f(name, member, type of the value, help, heading) for each: the one list of the flags.
  template <class F> static void for_each_field(F&& f) {
    using S = AttentionSweep;
    const char *shape = "Attention", *run = "Run";
    f("batch", &S::batch, "N,..", "sequences", shape);
    f("heads", &S::heads, "N,..", "heads", shape);
    f("kv_heads", &S::kv_heads, "N,..", "key/value heads, shared evenly by the heads (default: one for each)", shape);
    f("ctx", &S::ctx, "N,..", "positions", shape);
    f("head_dim", &S::head_dim, "N,..", "width of a head", shape);
    f("full", &S::full, "", "without the causal mask", shape);
    f("attention", &S::attention, "NAME,..", attention_help, run);
    f("tile", &S::tile, "N,..", "rows and columns of a tile, for tiled and portable", run);
    f("deterministic", &S::deterministic, "", deterministic_help, run);
    f("dtype", &S::dtype, "NAME,..", "of q, k and v: fp32, tf32, bf16, fp16, or fp64 on the CPU", run);
    f("pass", &S::pass, "NAME,..", "forward, forward-backward", run);
    f("mode", &S::mode, "NAME,..", "eager, or compiled: the pass is traced once, then replayed", run);
    f("passes", &S::passes, "NAME+..,..",
      "of the compiler: all (default), none, or some with + between them; compiled naive never becomes flash", run);
    f("warmup", &S::warmup, "N", "untimed passes first", run);
    f("steps", &S::steps, "N", "timed passes", run);
    f("seed", &S::seed, "N", "of q, k and v (default 0)", run);
  }

  // `without` names fields that the command has no use for; `defaults` are added to the help.
  void declare(Flags& flags, const AttentionSweep& defaults, const std::vector<std::string>& without = {});
  void fill_in(const AttentionSweep& defaults);  // where nothing was given
  // Every combination, checked, on the device it chooses. What is compared varies fastest: deterministic or not (where
  // both are wanted), the compiler's passes, mode, tile, attention, dtype.
  enum class Determinism { as_asked, compared };
  std::vector<AttentionConfig> configs(Determinism determinism = Determinism::as_asked) const;
};

}  // namespace sinter::lab
