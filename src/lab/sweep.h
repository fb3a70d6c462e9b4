// Configurations as fields, and the lists a sweep is made from.
#pragma once
#include "system/json.h"
#include "train/run_config.h"

namespace sinter::lab {

// A run, and how to measure it.
struct MeasuredRun : RunConfig {
  int64_t warmup = 5, steps = 10;
  bool no_tune = false;                             // products take the library's first guess
  AttentionKind wanted = AttentionKind::automatic;  // of which model.attention is what this device makes
};
Json to_json(const MeasuredRun& c);
std::vector<std::string> flags_of(
    const MeasuredRun& c);  // that make bench model run this and nothing else, on the same GPU

// Empty lists and options were not given.
struct SweepOptions {
  std::vector<std::string> size, dtype, attention, mode, passes, pass;
  std::vector<int64_t> d_model, d_ff, layers, heads, kv_heads, vocab, ctx, batch, warmup;
  std::optional<int64_t> accumulate, steps, seed, threads;
  std::optional<double> memory_budget, lr, clip, rope_theta, norm_eps;
  std::optional<std::string> device;
  std::optional<bool> deterministic, no_tune;
  std::optional<int64_t> max_ctx, max_token_id;  // limits that a configuration file states

  // Calls f(name, field) for each: the one list of what a configuration consists of.
  template <class F> void for_each_field(F&& f) {
    f("device", device);
    f("size", size);
    f("d_model", d_model);
    f("d_ff", d_ff);
    f("layers", layers);
    f("heads", heads);
    f("kv_heads", kv_heads);
    f("vocab", vocab);
    f("ctx", ctx);
    f("batch", batch);
    f("accumulate", accumulate);
    f("dtype", dtype);
    f("attention", attention);
    f("deterministic", deterministic);
    f("mode", mode);
    f("passes", passes);
    f("memory_budget", memory_budget);
    f("pass", pass);
    f("no_tune", no_tune);
    f("warmup", warmup);
    f("steps", steps);
    f("seed", seed);
    f("threads", threads);
    f("lr", lr);
    f("clip", clip);
    f("rope_theta", rope_theta);
    f("norm_eps", norm_eps);
    f("max_ctx", max_ctx);
    f("max_token_id", max_token_id);
  }
};
SweepOptions sweep_from_json(const Json& config, const std::string& where);
Json to_json(SweepOptions o);
SweepOptions overlaid(SweepOptions base, SweepOptions over);  // what `over` gives wins
SweepOptions with_defaults(SweepOptions o);
void set_up_process(const SweepOptions& o);  // what holds for all of it: --threads, --no-tune

DeviceInfo imagined_device(const std::string& name);  // the device of that name, or for a GPU that is not here a card
// Every combination, each checked, for the device that is named, or for one that need not be in this machine. Attention varies fastest and then the
// dtype, so that variants to compare stand together.
std::vector<MeasuredRun> expand(const SweepOptions& o, const std::optional<DeviceInfo>& imagined = {});

}  // namespace sinter::lab
