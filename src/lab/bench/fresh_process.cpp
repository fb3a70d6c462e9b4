// Fresh processes: ours, once per warm-up, and ours alternating with a peer's.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "core/check.h"
#include "lab/bench/bench_model.h"
#include "lab/peer_script.h"
#include "system/process.h"
#include "system/signals.h"
#include "system/units.h"

namespace sinter::lab {
namespace {

// One configuration with one or more passes, in a process of its own.
struct Work {
  MeasuredRun config;
  std::string passes;  // "forward,step"
  std::optional<int64_t> threads;
};

// A child is told its configuration as JSON, and answers with its record. One that was interrupted has still written
// what it finished.
Json results_of_child(const Work& work, bool itemise) {
  Json config = config_of(work.config);
  config["pass"] = split("--pass", work.passes);
  if (work.config.device == DeviceType::cuda)
    config["device"] = fmt::format("cuda:{}", backend_of(work.config.device).info().ordinal);
  if (work.threads) config["threads"] = *work.threads;
  Json options = {{"config", config}, {"itemise", itemise}};
  ProcessResult p = run_process({own_executable(), "bench", "model", "--child", options.dump(), "--json", "-"},
                                {.until_interrupted = true});
  Json record = Json::parse(p.output, nullptr, false);
  if (record.is_object() && record.contains("results")) return record["results"];
  if (!interrupted())
    fail_with(ErrorKind::peer, "a fresh sinter process for {} ended with code {} and no record", work.config.text(),
              p.exit_code);
  return Json::array();
}

std::string median_text(const Json& row) {
  if (!row.contains("median_ms")) return row.value("status", "");
  return fmt::format("{} {} ms", row.value("pass", "?"), significant(row["median_ms"].get<double>(), 4));
}

class ChildCase : public Case {
 public:
  ChildCase(const Work& work, const std::string& text) : work_(work), text_(text) {}
  std::string text() const override { return text_; }
  bool run(const Turn&, Progress&) override {
    rows_ = results_of_child(work_, false);
    return !interrupted();
  }
  Json rows() override { return rows_; }
  std::string outcome(const Json& row) const override { return median_text(row); }

 private:
  Work work_;
  std::string text_;
  Json rows_ = Json::array();
};

class PeerCase : public Case {
 public:
  PeerCase(const Work& work, const std::string& text, const std::string& variant, const std::string& python)
      : work_(work), text_(text), variant_(variant), python_(python) {}
  std::string text() const override { return text_; }
  bool run(const Turn&, Progress&) override {
    std::string why;
    Json reply = peer_reply(command(), why);
    if (!why.empty()) note_ = fmt::format("{}: {}", variant_, why);
    try {
      if (!reply.is_null())
        for (const Json& theirs : reply["results"]) rows_.push_back(result_of(theirs, reply));
    } catch (const Json::exception& e) {
      note_ = fmt::format("{}: its reply is not as expected: {}", variant_, message_of(e));
    }
    return !interrupted();
  }
  Json rows() override { return rows_; }
  std::string outcome(const Json& row) const override { return median_text(row); }
  std::vector<std::string> notes() const override {
    return note_.empty() ? std::vector<std::string>{} : std::vector{note_};
  }

 private:
  std::vector<std::string> command() const {
    const MeasuredRun& run = work_.config;
    PeerCommand c = peer_command(python_, "torch_lm.py", run);
    c.add("--variant", variant_);
    c.add("--device", name_of(run.device));
    c.add("--pass", work_.passes);
    c.add("--steps", run.steps);
    c.add("--seed", run.seed);
    c.add("--rope-theta", run.model.rope_theta);
    c.add("--norm-eps", run.model.norm_eps);
    c.add("--threads", work_.threads.value_or(cpu_backend().info().multiprocessors));
    c.add("--gpu", backend_of(run.device).info().ordinal);
    return c.words;
  }

  // Its row has our fields where they mean the same, and none where the peer does not say.
  BenchResult result_of(const Json& theirs, const Json& reply) const {
    BenchResult r;
    r.engine = fmt::format("{} ({})", variant_, reply.value("torch", "?"));
    r.run = work_.config;
    r.run.pass = pass_named(theirs.at("pass"));
    r.attention = variant_ == "torch-plain" ? "naive" : "SDPA";
    r.mode = variant_ == "torch-compiled" ? "compiled" : "eager";
    r.status = theirs.at("status");
    r.reason = theirs.value("reason", "");
    if (theirs.value("peak_bytes", Json()).is_number()) r.peak_bytes = theirs["peak_bytes"];
    if (theirs.value("parameters", Json()).is_number()) r.parameters = theirs["parameters"];
    if (reply.contains("machine")) r.peer = reply["machine"];
    if (theirs.value("clocks", Json()).is_object()) r.clocks = theirs["clocks"];
    if (r.status != "ok") return r;
    r.samples_ms = theirs.at("samples_ms").get<std::vector<double>>();
    r.trajectory_ms = theirs.value("trajectory_ms", std::vector<double>());
    Statistics s = statistics_of(r.samples_ms);
    r.mean_ms = s.mean, r.std_ms = s.std, r.median_ms = s.median;
    r.tokens_per_s = double(work_.config.batch * work_.config.model.ctx) / s.median * 1e3;
    return r;
  }

  Work work_;
  std::string text_, variant_, python_, note_;
  Json rows_ = Json::array();
};

// Says something once, and has no rows.
class NoteCase : public Case {
 public:
  explicit NoteCase(const std::string& note) : note_(note) {}
  std::string text() const override { return note_; }
  bool run(const Turn&, Progress&) override { return true; }
  Json rows() override { return Json::array(); }
  std::vector<std::string> notes() const override { return {note_}; }

 private:
  std::string note_;
};

// All passes of one shape and dtype share a process.
std::vector<Work> by_shape(const std::vector<MeasuredRun>& runs, const std::optional<int64_t>& threads) {
  std::vector<Work> all;
  auto same_but_pass = [](MeasuredRun a, const MeasuredRun& b) {
    a.pass = b.pass;
    return config_of(a) == config_of(b);
  };
  for (const MeasuredRun& c : runs) {
    auto it = std::find_if(all.begin(), all.end(), [&](const Work& w) { return same_but_pass(w.config, c); });
    if (it == all.end()) all.push_back({c, name_of(c.pass), threads});
    else it->passes += std::string(",") + name_of(c.pass);
  }
  return all;
}

}  // namespace

std::vector<Group> groups_with_peers(const BenchOptions& options, const std::vector<MeasuredRun>& runs) {
  for (const MeasuredRun& c : runs) {
    check(c.model.kv_heads == c.model.heads,
          "--peer with --kv-heads {}: the peers' model has one for each of its {} heads", c.model.kv_heads,
          c.model.heads);
    check(!c.model.tied_embeddings, "--peer with --tied-embeddings: the peers' model has a head of its own");
    check(!c.model.rope_scaling.on(), "--peer with --rope-scaling: the peers' model has plain RoPE");
  }
  bool torch = torch_version(options.python).has_value();
  std::vector<Group> groups;
  for (const Work& w : by_shape(runs, options.sweep.threads)) {
    std::string shape =
        fmt::format("{}, batch {}, ctx {}, {}, {} attention: {}", w.config.model.name, w.config.batch,
                    w.config.model.ctx, w.config.precision.name, name_of(w.config.model.attention.kind), w.passes);
    Group& g = groups.emplace_back();
    g.in_turns = false;  // ours stands before and after each of theirs
    g.cases.push_back(std::make_unique<ChildCase>(w, shape + ": ours"));
    if (!torch)
      g.cases.push_back(std::make_unique<NoteCase>(fmt::format(
          "--peer: {} cannot import torch, so ours runs alone; name another with --python", options.python)));
    for (const std::string& variant : torch ? options.peers : std::vector<std::string>{}) {
      g.cases.push_back(std::make_unique<PeerCase>(w, fmt::format("{}: {}", shape, variant), variant, options.python));
      g.cases.push_back(std::make_unique<ChildCase>(w, shape + ": ours again"));
    }
  }
  return groups;
}

std::vector<Group> groups_by_warmup(const BenchOptions& options, const std::vector<MeasuredRun>& runs) {
  std::vector<Group> groups;
  for (const MeasuredRun& c : runs)
    groups.emplace_back().cases.push_back(
        std::make_unique<ChildCase>(Work{c, name_of(c.pass), options.sweep.threads},
                                    fmt::format("{}, warm-up {}: fresh process", c.text(), c.warmup)));
  return groups;
}

Json startup_of_fresh_process(const BenchOptions& options, const MeasuredRun& run) {
  MeasuredRun first = run;
  first.warmup = 0;
  Json results = results_of_child({first, name_of(first.pass), options.sweep.threads}, true);
  return results.empty() ? Json() : results[0].value("startup_ms", Json());
}

}  // namespace sinter::lab
