// Fresh processes: ours, once per warm-up, and ours alternating with a peer's.
#include <algorithm>

#include "core/check.h"
#include "lab/bench/bench_model.h"
#include "lab/peer_script.h"
#include "system/process.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// A child that was interrupted has still written what it finished.
Json results_of_child(const BenchOptions& options, const MeasuredRun& c, const std::string& passes,
                      const char* extra = nullptr) {
  std::vector<std::string> command = {own_executable(), "bench", "model"};
  std::vector<std::string> flags = flags_of(c);
  for (size_t i = 0; i + 1 < flags.size(); ++i)
    if (flags[i] == "--pass") flags[i + 1] = passes;
  command.insert(command.end(), flags.begin(), flags.end());
  if (options.sweep.threads) command.insert(command.end(), {"--threads", std::to_string(*options.sweep.threads)});
  command.insert(command.end(), {"--json", "-", "--child"});
  if (extra) command.push_back(extra);
  ProcessResult p = run_process(command);
  Json record = Json::parse(p.output, nullptr, false);
  if (record.is_object() && record.contains("results")) return record["results"];
  if (!interrupted())
    fail_with(ErrorKind::peer, "a fresh sinter process for {} ended with code {} and no record", c.text(), p.exit_code);
  return Json::array();
}

// The peer's rows: our fields where they mean the same, null where the peer does not say.
Json results_of_peer(const BenchOptions& options, const std::string& variant, const MeasuredRun& c,
                     const std::string& passes, std::string& note) {
  const ModelConfig& m = c.model;
  auto n = [](int64_t v) { return std::to_string(v); };
  std::vector<std::string> command = {options.python, peer_script("torch_lm.py"),
                                      "--variant",    variant,
                                      "--device",     name_of(c.device),
                                      "--dtype",      c.precision.name,
                                      "--pass",       passes,
                                      "--d-model",    n(m.d_model),
                                      "--d-ff",       n(m.d_ff),
                                      "--layers",     n(m.layers),
                                      "--heads",      n(m.heads),
                                      "--vocab",      n(m.vocab),
                                      "--ctx",        n(m.ctx),
                                      "--batch",      n(c.batch),
                                      "--warmup",     n(c.warmup),
                                      "--steps",      n(c.steps),
                                      "--seed",       n(int64_t(c.seed)),
                                      "--lr",         fmt::format("{}", c.lr),
                                      "--clip",       fmt::format("{}", c.clip),
                                      "--rope-theta", fmt::format("{}", m.rope_theta),
                                      "--norm-eps",   fmt::format("{}", m.norm_eps)};
  command.insert(command.end(), {"--threads", n(options.sweep.threads.value_or(cpu_backend().info().multiprocessors)),
                                 "--gpu", n(backend_of(c.device).info().ordinal)});
  std::string why;
  Json reply = peer_reply(command, why);
  if (!why.empty()) note = fmt::format("{}: {}", variant, why);
  if (reply.is_null()) return Json::array();
  Json results = Json::array();
  for (const Json& theirs : reply["results"]) {
    MeasuredRun same = c;
    same.pass = pass_named(theirs["pass"]);
    Json r = {{"engine", fmt::format("{} ({})", variant, reply.value("torch", "?"))},
              {"size", m.name},
              {"device", name_of(c.device)},
              {"dtype", c.precision.name},
              {"mode", variant == "torch-compiled" ? "compiled" : "eager"},
              {"attention", variant == "torch-plain" ? "naive" : "SDPA"}};
    r.update(theirs);
    Json shape = to_json(same);
    for (const char* field :
         {"batch", "ctx", "d_model", "d_ff", "layers", "heads", "kv_heads", "vocab", "seed", "warmup", "steps"})
      r[field] = shape[field];
    r["config"] = shape;
    if (r["status"] == "ok") {
      Statistics s = statistics_of(r["samples_ms"]);
      r["mean_ms"] = s.mean;
      r["std_ms"] = s.std;
      r["median_ms"] = s.median;
      r["tokens_per_s"] = double(c.batch * m.ctx) / s.median * 1e3;
    }
    results.push_back(r);
  }
  return results;
}

void append(Json& to, const Json& from) {
  for (const Json& r : from) to.push_back(r);
}

}  // namespace

void bench_against_peers(const BenchOptions& options, const std::vector<MeasuredRun>& runs, Json& record,
                         Progress& progress) {
  for (const MeasuredRun& c : runs)
    check(c.model.kv_heads == c.model.heads,
          "--peer with --kv-heads {}: the peers' model has one for each of its {} heads", c.model.kv_heads,
          c.model.heads);
  plan::Peaks peaks(runs[0].device);  // now, so that the children find them in the cache
  for (const MeasuredRun& c : runs) peaks.product(c.precision.name);
  peaks.copy();
  bool torch = torch_version(options.python).has_value();
  record["notes"] = Json::array();
  if (!torch) {
    record["notes"].push_back(
        fmt::format("--peer: {} cannot import torch, so ours runs alone; name another with --python", options.python));
    progress.done(record["notes"][0]);
  }
  // All passes of one shape and dtype share a process on each side.
  struct Group {
    MeasuredRun config;
    std::string passes;
  };
  std::vector<Group> groups;
  auto same_but_pass = [](MeasuredRun a, const MeasuredRun& b) {
    a.pass = b.pass;
    return to_json(a) == to_json(b);
  };
  for (const MeasuredRun& c : runs) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return same_but_pass(g.config, c); });
    if (it == groups.end()) groups.push_back({c, name_of(c.pass)});
    else it->passes += std::string(",") + name_of(c.pass);
  }
  for (const Group& g : groups) {
    std::string shape =
        fmt::format("{}, batch {}, ctx {}, {}, {} attention: {}", g.config.model.name, g.config.batch,
                    g.config.model.ctx, g.config.precision.name, name_of(g.config.model.attention.kind), g.passes);
    auto ours = [&] {
      progress.now(shape + ": ours");
      append(record["results"], results_of_child(options, g.config, g.passes));
    };
    ours();
    for (const std::string& variant : torch ? options.peers : std::vector<std::string>{}) {
      if (interrupted()) return;
      progress.now(fmt::format("{}: {}", shape, variant));
      std::string note;
      append(record["results"], results_of_peer(options, variant, g.config, g.passes, note));
      Json& notes = record["notes"];
      if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end()) {
        notes.push_back(note);
        progress.done(note);
      }
      if (interrupted()) return;
      ours();
    }
    if (interrupted()) return;
    progress.done(shape + ": done");
  }
}

void bench_warmups(const BenchOptions& options, const std::vector<MeasuredRun>& runs, Json& record,
                   Progress& progress) {
  plan::Peaks peaks(runs[0].device);
  for (const MeasuredRun& c : runs) peaks.product(c.precision.name);
  peaks.copy();
  MeasuredRun first = runs[0];
  first.warmup = 0;
  progress.now("one-time costs of a fresh process");
  Json itemised = results_of_child(options, first, name_of(first.pass), "--itemise");
  for (const MeasuredRun& c : runs) {
    if (interrupted()) return;
    progress.now(fmt::format("{}, warm-up {}: fresh process", c.text(), c.warmup));
    append(record["results"], results_of_child(options, c, name_of(c.pass)));
    progress.done(fmt::format("{}, warm-up {}: done", c.text(), c.warmup));
  }
  if (!itemised.empty() && itemised[0].contains("startup_ms") && !record["results"].empty())
    record["results"][0]["startup_ms"] = itemised[0]["startup_ms"];
}

}  // namespace sinter::lab
