// Configurations as fields, and the lists a sweep is made from.
#pragma once
#include "lab/fields.h"
#include "lab/flags.h"
#include "train/run_config.h"

namespace sinter::lab {

// A run, and how to measure it.
struct MeasuredRun : RunConfig {
  int64_t warmup = 5, steps = 10;
  bool no_tune = false;                             // products take the library's first guess
  AttentionKind wanted = AttentionKind::automatic;  // of which model.attention is what this device makes

  // What a result says of its run.
  template <class F> static void fields(const MeasuredRun& c, F&& f) {
    const ModelConfig& m = c.model;
    f("device", std::string(name_of(c.device)));
    f("size", m.name);
    f("d_model", m.d_model);
    f("d_ff", m.d_ff);
    f("layers", m.layers);
    f("heads", m.heads);
    f("kv_heads", m.key_value_heads());
    f("vocab", m.vocab);
    f("ctx", m.ctx);
    f("batch", c.batch);
    f("accumulate", c.accumulate);
    f("dtype", c.precision.name);
    f("attention", std::string(name_of(m.attention.kind)));
    f("deterministic", m.attention.deterministic);
    f("mode", std::string(name_of(c.mode)));
    f("passes", c.mode == Mode::compiled ? Json(c.passes) : Json());
    f("memory_budget", c.memory_budget);
    f("pass", std::string(name_of(c.pass)));
    f("no_tune", c.no_tune);
    f("warmup", c.warmup);
    f("steps", c.steps);
    f("seed", c.seed);
    f("lr", c.adamw.learning_rate);
    f("clip", c.adamw.max_norm);
    f("rope_theta", m.rope_theta);
    f("norm_eps", m.norm_eps);
    f("rope_scaling", text_of(m.rope_scaling));
    f("tied_embeddings", m.tied_embeddings);
  }
};
Json config_of(const MeasuredRun& c);  // as --config takes it: makes bench model run this and nothing else

std::string passes_help();  // of --passes, naming those there are

// Empty lists and options were not given.
struct SweepOptions {
  std::vector<std::string> size, dtype, attention, mode, passes, pass;
  std::vector<int64_t> d_model, d_ff, layers, heads, kv_heads, vocab, ctx, batch, warmup;
  std::optional<int64_t> accumulate, steps, seed, threads;
  std::optional<double> memory_budget, memory_limit, lr, clip, rope_theta, norm_eps;
  std::optional<std::string> device, rope_scaling;
  std::optional<bool> deterministic, no_tune, tied_embeddings;
  std::optional<int64_t> max_ctx, max_token_id;  // limits that a configuration file states

  // Calls f(name, field, type of the value, help, heading) for each: the one list of what a configuration consists of,
  // and of the flags that say it. Without a heading it is not a flag.
  template <class F> void for_each_field(F&& f) {
    const char *shape = "Model", *run = "Run";
    f("size", size, "NAME,..", "tiny, mini, small, medium, large, xl, 2.7B (default: small on a GPU, tiny on a CPU)",
      shape);
    f("d_model", d_model, "N,..", "width; overrides the size's", shape);
    f("d_ff", d_ff, "N,..", "inner width of the feed-forward", shape);
    f("layers", layers, "N,..", "number of blocks", shape);
    f("heads", heads, "N,..", "attention heads; must divide the width", shape);
    f("kv_heads", kv_heads, "N,..", "key/value heads, shared evenly by the heads (default: one for each)", shape);
    f("vocab", vocab, "N,..", "vocabulary (default 10000)", shape);
    f("ctx", ctx, "N,..", "context length (default 256)", shape);
    f("batch", batch, "N,..", "sequences per step (default 4)", shape);
    f("rope_theta", rope_theta, "X", "RoPE's base (default 10000)", shape);
    f("norm_eps", norm_eps, "X", "RMSNorm's epsilon (default 1e-5)", shape);
    f("rope_scaling", rope_scaling, "FACTOR,LOW,HIGH,CTX",
      "Llama 3's scaling of RoPE: 8,1,4,8192 as in Llama 3.1, or none (default none)", shape);
    f("tied_embeddings", tied_embeddings, "", "embedding and head are one parameter", shape);
    f("device", device, "", "", "");  // every command has it: add_device_flag
    f("dtype", dtype, "NAME,..",
      "fp32, tf32, bf16, fp16; 16-bit means mixed precision with fp32 masters (default fp32)", run);
    f("attention", attention, "NAME,..", std::string(attention_help) + " (default auto)", run);
    f("deterministic", deterministic, "", deterministic_help, run);
    f("mode", mode, "NAME,..", "eager, or compiled: the pass is traced once, then replayed as one (default eager)",
      run);
    f("passes", passes, "NAME+..,..", passes_help(), run);
    f("memory_budget", memory_budget, "GIB",
      "a compiled pass recomputes what would make it take more than this (default: no limit)", run);
    f("memory_limit", memory_limit, "GIB", "this process may take no more of the device's memory (default: all of it)",
      run);
    f("pass", pass, "NAME,..", "forward, forward-backward, step (default step)", run);
    f("warmup", warmup, "N,..", "untimed passes first (default 5); bench model takes several: each in a fresh process",
      run);
    f("steps", steps, "N", "timed passes (default 10)", run);
    f("accumulate", accumulate, "N", "micro-batches of --batch sequences that make a step (default 1)", run);
    f("no_tune", no_tune, "", "products on CUDA take cuBLASLt's first guess; none are timed to find the fastest", run);
    f("seed", seed, "N", "of parameters and tokens (default 0)", run);
    f("lr", lr, "X", "AdamW's learning rate (default 1e-4)", run);
    f("clip", clip, "X", "clip the gradient's global norm to this; 0 does not (default 0)", run);
    f("threads", threads, "N", "CPU threads (default: all this process may use)", run);
    f("max_ctx", max_ctx, "", "", "");
    f("max_token_id", max_token_id, "", "", "");
  }
};
SweepOptions sweep_from_json(const Json& config, const std::string& where);
Json to_json(SweepOptions o);
SweepOptions overlaid(SweepOptions base, SweepOptions over);  // what `over` gives wins
SweepOptions with_defaults(SweepOptions o);
void set_up_process(const SweepOptions& o);  // what holds for all of it: --threads, --no-tune

DeviceInfo imagined_device(const std::string& name);  // the device of that name, or for a GPU that is not here a card
// Every combination, each checked, for the device that is named, or for one that need not be in this machine. Attention
// varies fastest and then the dtype, so that variants to compare stand together.
std::vector<MeasuredRun> expand(const SweepOptions& o, const std::optional<DeviceInfo>& imagined = {});

}  // namespace sinter::lab
