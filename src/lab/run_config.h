// What to run: one configuration, and the lists a sweep is made from.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lab/json.h"
#include "train/trainer.h"

namespace sinter::lab {

enum class Mode { eager, compiled };  // calls run as they are made, or the pass is traced once and replayed
const char* name_of(Mode m);
Mode mode_named(const std::string& name);
enum class Pass { forward, forward_backward, step };
const char* name_of(Pass p);
Pass pass_named(const std::string& name);
DeviceType device_named(const std::string& name);  // refuses cuda where there is none, with the reason

struct RunConfig {
  ModelConfig model;
  int64_t batch = 4;
  DeviceType device = DeviceType::cpu;
  Precision precision;
  Pass pass = Pass::step;
  Mode mode = Mode::eager;
  std::string passes = "all";  // of the compiler, as compile::passes_named takes them
  double memory_budget = 0;    // GiB that a compiled pass may take; 0: no limit
  int64_t warmup = 5, steps = 10;
  uint64_t seed = 0;
  double lr = 1e-4, clip = 0;
  std::string attention_why;  // how model.attention came to be
  int64_t accumulate = 1;     // micro-batches of `batch` sequences that make a step
  bool no_tune = false;       // products take the library's first guess

  TrainerOptions trainer_options(DeviceType where) const;
  compile::CompileOptions compile_options() const;
  std::string text() const;  // "small, batch 4, ctx 256, bf16, flash attention, step"
};
std::string maths_text(const Precision& p);
Json to_json(const RunConfig& c);
std::vector<std::string> flags_of(const RunConfig& c);  // that make bench model run this and nothing else

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

enum class Device { present, imagined };  // an imagined one need not be in this machine
// Every combination, each checked. Attention varies fastest and then the dtype, so that variants to compare stand
// together.
std::vector<RunConfig> expand(const SweepOptions& o, Device device = Device::present);

}  // namespace sinter::lab
