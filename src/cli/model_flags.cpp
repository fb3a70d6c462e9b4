#include "cli/model_flags.h"

#include <cmath>
#include <fmt/ranges.h>

#include "cli/app.h"
#include "cli/list.h"
#include "compile/compiled.h"
#include "lab/config_file.h"

namespace sinter::cli {
namespace {

template <class T> T parse(const std::string& flag, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) return text;
  else if constexpr (std::is_same_v<T, bool>) return text == "true";
  else return number<T>(flag, text);
}
template <class T> void read(const std::string& flag, const std::string& text, std::vector<T>& out) {
  for (const std::string& part : split(flag, text)) out.push_back(parse<T>(flag, part));
}
template <class T> void read(const std::string& flag, const std::string& text, std::optional<T>& out) {
  out = parse<T>(flag, text);
  if constexpr (std::is_same_v<T, double>) check(std::isfinite(*out), "{} {}: must be finite", flag, text);
}

std::string flag_of(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : c;
  return "--" + name;
}

}  // namespace

lab::SweepOptions ModelFlags::sweep() const {
  lab::SweepOptions given;
  given.for_each_field([&](const std::string& name, auto& field) {
    auto it = text.find(name);
    if (it != text.end() && !it->second.empty()) read(flag_of(name), it->second, field);
  });
  lab::SweepOptions all = config.empty() ? given : lab::overlaid(lab::read_config_file(config), given);
  if (all.device) all.device = device_of(*all.device);
  return all;
}

void add_model_flags(CLI::App& command, ModelFlags& flags, Passes passes) {
  auto add = [&](const char* name, const char* type, const char* help, const char* group) {
    add_text(command, flag_of(name), flags.text[name], help, type, group);
  };
  const char *shape = "Model", *run = "Run";
  add("size", "NAME,..", "tiny, mini, small, medium, large, xl, 2.7B (default: small on a GPU, tiny on a CPU)", shape);
  add("d_model", "N,..", "width; overrides the size's", shape);
  add("d_ff", "N,..", "inner width of the feed-forward", shape);
  add("layers", "N,..", "number of blocks", shape);
  add("heads", "N,..", "attention heads; must divide the width", shape);
  add("kv_heads", "N,..", "key/value heads, shared evenly by the heads (default: one for each)", shape);
  add("vocab", "N,..", "vocabulary (default 10000)", shape);
  add("ctx", "N,..", "context length (default 256)", shape);
  add("batch", "N,..", "sequences per step (default 4)", shape);
  add("rope_theta", "X", "RoPE's base (default 10000)", shape);
  add("norm_eps", "X", "RMSNorm's epsilon (default 1e-5)", shape);
  add_text(command, "--config", flags.config, "a sinter record, or a Hugging Face config.json; flags override it",
           "FILE", shape);
  add_device_flag(command, flags.text["device"], run);
  add("dtype", "NAME,..", "fp32, tf32, bf16, fp16; 16-bit means mixed precision with fp32 masters (default fp32)", run);
  add("attention", "NAME,..", (std::string(attention_help) + " (default auto)").c_str(), run);
  command
      .add_flag_callback(
          "--deterministic", [&flags] { flags.text["deterministic"] = "true"; }, deterministic_help)
      ->group(run);
  add("mode", "NAME,..", "eager, or compiled: the pass is traced once, then replayed as one (default eager)", run);
  add("passes", "NAME+..,..",
      fmt::format("of the compiler: all, none, or some ({}) with + between (default all)",
                  fmt::join(compile::pass_names(), ", "))
          .c_str(),
      run);
  add("memory_budget", "GIB",
      "a compiled pass computes again what would make it take more than this (default: no limit)", run);
  add("pass", "NAME,..", "forward, forward-backward, step (default step)", run);
  if (passes == Passes::timed) {
    add("warmup", "N,..", "untimed passes first (default 5); bench takes several: each in a fresh process", run);
    add("steps", "N", "timed passes (default 10)", run);
  }
  add("accumulate", "N", "micro-batches of --batch sequences that make a step (default 1)", run);
  if (passes != Passes::none) {
    command
        .add_flag_callback(
            "--no-tune", [&flags] { flags.text["no_tune"] = "true"; },
            "products on CUDA take cuBLASLt's first guess; none are timed to find the fastest")
        ->group(run);
  }
  add("seed", "N", "of parameters and tokens (default 0)", run);
  add("lr", "X", "AdamW's learning rate (default 1e-4)", run);
  add("clip", "X", "clip the gradient's global norm to this; 0 does not (default 0)", run);
  add("threads", "N", "CPU threads (default: all this process may use)", run);
}

}  // namespace sinter::cli
