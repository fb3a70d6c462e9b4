#include "lab/sweep.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "backend/cpu/thread_pool.h"
#include "backend/cuda/cuda.h"
#include "compile/compiled.h"
#include "core/check.h"
#include "lab/option_fields.h"
#include "plan/fit.h"
#include "plan/gpus.h"
#include "system/host.h"

namespace sinter::lab {
namespace {

void check_range(const char* flag, int64_t v, int64_t low, int64_t high) {
  check(v >= low, "--{} must be at least {}, not {}", flag, low, v);
  check(v <= high, "--{} {} is beyond what sinter is made for; the most is {}", flag, v, high);
}

void check_run(const MeasuredRun& c, const SweepOptions& o) {
  const ModelConfig& m = c.model;
  check_range("d-model", m.d_model, 1, 1 << 20);
  check_range("d-ff", m.d_ff, 1, 1 << 22);
  check_range("layers", m.layers, 1, 10000);
  check_range("heads", m.heads, 1, 1 << 20);
  check_range("kv-heads", m.kv_heads, 1, 1 << 20);
  check_range("vocab", m.vocab, 1, 1 << 26);
  check_range("ctx", m.ctx, 1, 1 << 20);
  check_range("batch", c.batch, 1, 1 << 24);
  check_range("accumulate", c.accumulate, 1, 1 << 20);
  check(c.accumulate == 1 || c.pass == Pass::step,
        "--accumulate {}: micro-batches make a step; use --pass step, not {}", c.accumulate, name_of(c.pass));
  check_range("warmup", c.warmup, 0, 1000000);
  check_range("steps", c.steps, 1, 1000000);
  check(c.memory_budget >= 0, "--memory-budget must not be negative, and is {} GiB; 0 means no limit", c.memory_budget);
  double lr = c.adamw.learning_rate, clip = c.adamw.max_norm;
  check(lr >= 0, "--lr must not be negative, and is {}", lr);
  check(clip >= 0, "--clip must not be negative, and is {}; 0 means no clipping", clip);
  check(m.norm_eps > 0 && m.rope_theta > 0, "--norm-eps and --rope-theta must be positive, not {} and {}", m.norm_eps,
        m.rope_theta);
  validate(m);
  double tokens = double(c.batch) * double(m.ctx);
  double largest = tokens * std::max(double(m.vocab), std::max(2.0 * double(m.d_ff), double(m.heads) * double(m.ctx)));
  check(largest < 1e15, "--batch {} with --ctx {} makes tensors of {:.1e} elements; use smaller ones", c.batch, m.ctx,
        largest);
  check(!o.max_ctx || m.ctx <= *o.max_ctx,
        "--ctx {}: the configuration file allows at most {} (max_position_embeddings)", m.ctx, o.max_ctx.value_or(0));
  check(!o.max_token_id || m.vocab > *o.max_token_id,
        "--vocab {} is too small for token id {} of the configuration file; use --vocab {} or more", m.vocab,
        o.max_token_id.value_or(0), o.max_token_id.value_or(0) + 1);
}

void choose(MeasuredRun& c, const DeviceInfo& on, AttentionKind wanted, bool deterministic) {
  c.model.attention = {wanted, deterministic, 0};
  if (c.model.heads < 1) return;  // check_run will say so
  AttentionChoice choice = choose_attention(wanted, on, c.model.head_dim());
  c.model.attention.kind = choice.kind;
  c.attention_why = choice.why;
  c.wanted = wanted;
}

// The shapes that sizes and shape flags name together.
std::vector<ModelConfig> shapes(const SweepOptions& o) {
  std::vector<ModelConfig> bases;
  for (const std::string& s : o.size) bases.push_back(known_size(s));
  if (bases.empty()) bases.push_back({});
  auto vary = [&bases](const std::vector<int64_t>& values, int64_t ModelConfig::*field, bool names_size) {
    if (values.empty()) return;
    std::vector<ModelConfig> out;
    for (const ModelConfig& base : bases)
      for (int64_t v : values) {
        out.push_back(base);
        if (names_size && base.*field != v) out.back().name = "custom";
        out.back().*field = v;
      }
    bases = out;
  };
  vary(o.d_model, &ModelConfig::d_model, true);
  vary(o.d_ff, &ModelConfig::d_ff, true);
  vary(o.layers, &ModelConfig::layers, true);
  vary(o.heads, &ModelConfig::heads, true);
  for (ModelConfig& m : bases) m.kv_heads = m.heads;
  vary(o.kv_heads, &ModelConfig::kv_heads, true);
  vary(o.vocab, &ModelConfig::vocab, false);
  vary(o.ctx, &ModelConfig::ctx, false);
  return bases;
}

}  // namespace

Json config_of(const MeasuredRun& c) {
  Json j = c;
  if (c.model.name == "custom") j.erase("size");  // its shape says all
  return j;
}

std::string passes_help() {
  return fmt::format("of the compiler: all, none, or some ({}) with + between (default all)",
                     fmt::join(compile::pass_names(), ", "));
}

SweepOptions sweep_from_json(const Json& config, const std::string& where) {
  return options_from_json<SweepOptions>(config, where);
}

Json to_json(SweepOptions o) { return options_json(o); }

SweepOptions overlaid(SweepOptions base, SweepOptions over) {
  // A size names a whole shape: given anew, it replaces all of the old one.
  if (given(over.size)) base.d_model = base.d_ff = base.layers = base.heads = base.kv_heads = {};
  Json merged = to_json(base);
  merged.update(to_json(over));
  return sweep_from_json(merged, "options");
}

SweepOptions with_defaults(SweepOptions o) {
  if (!o.device) o.device = default_device();
  // Shape flags override a size's; only all four together need none.
  bool complete = given(o.d_model) && given(o.d_ff) && given(o.layers) && given(o.heads);
  if (o.size.empty() && !complete) o.size = {*o.device == "cuda" ? "small" : "tiny"};
  if (o.vocab.empty()) o.vocab = {10000};
  if (o.ctx.empty()) o.ctx = {std::min<int64_t>(256, o.max_ctx.value_or(256))};
  if (o.batch.empty()) o.batch = {4};
  if (o.dtype.empty()) o.dtype = {"fp32"};
  if (o.attention.empty()) o.attention = {"auto"};
  if (o.mode.empty()) o.mode = {"eager"};
  if (o.passes.empty()) o.passes = {"all"};
  if (o.pass.empty()) o.pass = {"step"};
  if (o.warmup.empty()) o.warmup = {5};
  if (!o.steps) o.steps = 10;
  if (!o.seed) o.seed = 0;
  if (!o.lr) o.lr = 1e-4;
  if (!o.clip) o.clip = 0;
  return o;
}

void set_up_process(const SweepOptions& o) {
  set_product_tuning(!o.no_tune.value_or(false));
  if (o.memory_limit) {
    check(*o.memory_limit > 0 && *o.memory_limit < 1e6, "--memory-limit must be positive and less than 1e6, not {} GiB",
          *o.memory_limit);
    auto bytes = int64_t(*o.memory_limit * double(1 << 30));
    for (DeviceType d : {DeviceType::cpu, DeviceType::cuda})
      if (d == DeviceType::cpu || cuda_backend()) allocator_of(d).set_limit(bytes);
  }
  if (!o.threads) return;
  check(*o.threads >= 1, "--threads must be at least 1, not {}", *o.threads);
  check(*o.threads <= host_cores(),
        "--threads {0}: this process may use {1} core{2}, and threads beyond them only wait for each other; give at "
        "most {1}, or insist with SINTER_THREADS={0} in the environment",
        *o.threads, host_cores(), host_cores() == 1 ? "" : "s");
  cpu::set_threads(int(*o.threads));
}

DeviceInfo imagined_device(const std::string& name) {
  return name == "cuda" ? plan::device_or_card(DeviceType::cuda) : target_of(device_named(name));
}

std::vector<MeasuredRun> expand(const SweepOptions& o, const std::optional<DeviceInfo>& imagined) {
  std::vector<MeasuredRun> runs;
  for (const std::string& passes : o.passes) compile::passes_named(passes);
  bool compiled = std::find(o.mode.begin(), o.mode.end(), "compiled") != o.mode.end();
  check(compiled || o.memory_budget.value_or(0) == 0,
        "--memory-budget: only a compiled pass can keep to one; add --mode compiled");
  check(compiled || o.passes == std::vector<std::string>{"all"},
        "--passes: only a compiled pass has any; add --mode compiled");
  check(*o.seed >= 0, "--seed must not be negative, and is {}", *o.seed);
  check(!o.no_tune.value_or(false) || *o.device != "cpu",
        "--no-tune: only products on CUDA are tuned; leave it out with --device cpu");
  DeviceType device = imagined ? imagined->type : device_named(*o.device);
  DeviceInfo on = imagined ? *imagined : target_of(device);
  for (ModelConfig model : shapes(o)) {
    model.rope_theta = o.rope_theta.value_or(model.rope_theta);
    model.norm_eps = o.norm_eps.value_or(model.norm_eps);
    if (o.rope_scaling) model.rope_scaling = rope_scaling_of(*o.rope_scaling);
    model.tied_embeddings = o.tied_embeddings.value_or(false);
    for (int64_t batch : o.batch)
      for (const std::string& pass : o.pass)
        for (int64_t warmup : o.warmup)
          for (const std::string& dtype : o.dtype)
            for (const std::string& attention : o.attention)
              for (const std::string& mode : o.mode)
                for (const std::string& passes : mode == "eager" ? std::vector<std::string>{"all"} : o.passes) {
                  MeasuredRun run;
                  run.model = model, run.batch = batch, run.device = device;
                  run.precision = precision_named(dtype), run.pass = pass_named(pass), run.mode = mode_named(mode);
                  run.passes = passes, run.memory_budget = mode == "eager" ? 0 : o.memory_budget.value_or(0);
                  run.seed = uint64_t(*o.seed), run.adamw.learning_rate = *o.lr, run.adamw.max_norm = *o.clip;
                  run.accumulate = o.accumulate.value_or(1);
                  run.warmup = warmup, run.steps = *o.steps, run.no_tune = o.no_tune.value_or(false);
                  choose(run, on, attention_named(attention), o.deterministic.value_or(false));
                  check_run(run, o);
                  // Of a card one may ask what it lacks; plan::missing_on says so.
                  bool lacks = imagined && !plan::missing_on(on, run).empty();
                  if (!lacks) check_supported(run.precision, on);
                  runs.push_back(std::move(run));
                }
  }
  check(runs.size() <= 10000, "these lists make {} configurations; 10000 are the most", runs.size());
  return runs;
}

}  // namespace sinter::lab
