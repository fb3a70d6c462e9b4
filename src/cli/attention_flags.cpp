#include "cli/attention_flags.h"

#include "cli/app.h"
#include "cli/list.h"

namespace sinter::cli {

DeviceType AttentionFlags::where() const { return device_named(device_of(device)); }

std::vector<lab::AttentionConfig> AttentionFlags::configs(Determinism determinism) const {
  std::vector<lab::AttentionConfig> all;
  lab::AttentionConfig c;
  c.device = where();
  c.causal = !full;
  c.seed = number<uint64_t>("--seed", seed);
  auto each = [](const char* flag, const std::string& list, auto&& f) {
    for (const std::string& text : split(flag, list)) f(text);
  };
  auto each_number = [&](const char* flag, const std::string& list, int64_t& field, auto&& f) {
    each(flag, list, [&](const std::string& text) { field = number<int64_t>(flag, text), f(); });
  };
  check(passes.empty() || mode.find("compiled") != std::string::npos,
        "--passes: only compiled attention has any; add --mode compiled");
  auto add = [&] {
    lab::check_config(c);
    bool compared = determinism == Determinism::compared && deterministic && c.attention.kind != AttentionKind::naive;
    each("--mode", mode, [&](const std::string& m) {
      c.mode = mode_named(m);
      bool chosen = c.mode == Mode::compiled && !passes.empty();
      each("--passes", chosen ? passes : "all", [&](const std::string& p) {
        compile::passes_named(c.passes = p);  // refuses unknown ones
        for (bool d : compared ? std::vector<bool>{false, true} : std::vector<bool>{deterministic}) {
          c.attention.deterministic = d;
          all.push_back(c);
        }
      });
    });
    check(all.size() <= 10000, "these lists make more than 10000 configurations");
  };
  auto choose = [&](const std::string& name) {
    AttentionChoice choice = choose_attention(attention_named(name), target_of(c.device), c.head_dim);
    c.attention.kind = choice.kind;
    c.attention_why = choice.why;
    int64_t size = 0;
    c.attention.tile = 0;
    if (tile.empty()) return add();
    each_number("--tile", tile, size, [&] {
      check(size >= 1 && size <= 4096, "--tile must be between 1 and 4096, not {}", size);
      c.attention.tile = int32_t(size);
      add();
    });
  };
  auto variants = [&] {
    each("--pass", pass, [&](const std::string& p) {
      c.pass = pass_named(p);
      each("--dtype", dtype, [&](const std::string& t) {
        c.precision = precision_named(t);
        each("--attention", attention, choose);
      });
    });
  };
  auto shapes = [&] {
    each_number("--head-dim", head_dim, c.head_dim, [&] { each_number("--ctx", ctx, c.ctx, variants); });
  };
  each_number("--batch", batch, c.batch, [&] {
    each_number("--heads", heads, c.heads, [&] {
      c.kv_heads = c.heads;
      if (kv_heads.empty()) shapes();
      else each_number("--kv-heads", kv_heads, c.kv_heads, shapes);
    });
  });
  return all;
}

void add_attention_flags(CLI::App& command, AttentionFlags& f) {
  const char *shape = "Attention", *run = "Run";
  auto add = [&](const char* flag, std::string& value, const std::string& help, const char* type, const char* group) {
    add_text(command, flag, value, value.empty() ? help : help + " (default " + value + ")", type, group);
  };
  add("--batch", f.batch, "sequences", "N,..", shape);
  add("--heads", f.heads, "heads", "N,..", shape);
  add("--kv-heads", f.kv_heads, "key/value heads, shared evenly by the heads (default: one for each)", "N,..", shape);
  add("--ctx", f.ctx, "positions", "N,..", shape);
  add("--head-dim", f.head_dim, "width of a head", "N,..", shape);
  command.add_flag("--full", f.full, "without the causal mask")->group(shape);
  add("--attention", f.attention, attention_help, "NAME,..", run);
  add("--tile", f.tile, "rows and columns of a tile, for tiled and portable", "N,..", run);
  command.add_flag("--deterministic", f.deterministic, deterministic_help)->group(run);
  add_device_flag(command, f.device, run);
  add("--dtype", f.dtype, "of q, k and v: fp32, tf32, bf16, fp16, or fp64 on the CPU", "NAME,..", run);
  add("--pass", f.pass, "forward, forward-backward", "NAME,..", run);
  add("--warmup", f.warmup, "untimed passes first", "N", run);
  add("--steps", f.steps, "timed passes", "N", run);
  add("--seed", f.seed, "of q, k and v", "N", run);
}

void add_mode_flags(CLI::App& command, AttentionFlags& f) {
  add_text(command, "--mode", f.mode, "eager, or compiled: the pass is traced once, then replayed (default eager)",
           "NAME,..", "Run");
  add_text(command, "--passes", f.passes,
           "of the compiler: all (default), none, or some with + between them; compiled naive never becomes flash",
           "NAME+..,..", "Run");
}

}  // namespace sinter::cli
