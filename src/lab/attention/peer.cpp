// PyTorch's attention for the same shapes.
#include <algorithm>
#include <fmt/ranges.h>

#include "lab/attention/bench_attention.h"
#include "lab/peer_script.h"
#include "system/signals.h"

namespace sinter::lab {
namespace {

// Shapes, passes and dtypes, each once, whatever attention of ours runs them.
Json shapes_of(const std::vector<AttentionConfig>& configs) {
  Json shapes = Json::array();
  for (const AttentionConfig& c : configs) {
    Json s = to_json(c);
    for (const char* ours : {"attention", "attention_why", "tile", "deterministic", "maths", "mode", "passes"})
      s.erase(ours);
    if (std::find(shapes.begin(), shapes.end(), s) == shapes.end()) shapes.push_back(s);
  }
  return shapes;
}

AttentionResult result_of(const Json& theirs, const Json& reply) {
  AttentionResult r;
  r.engine = fmt::format("torch {} ({})", theirs.at("attention").get<std::string>(), reply.value("torch", "?"));
  r.config = theirs;
  for (const char* ours : {"status", "reason", "samples_ms", "held_bytes", "peak_bytes"}) r.config.erase(ours);
  r.status = theirs.at("status");
  r.reason = theirs.value("reason", "");
  auto bytes = [&](const char* field) {
    const Json b = theirs.value(field, Json());
    return b.is_number() ? std::optional(b.get<int64_t>()) : std::nullopt;
  };
  r.held_bytes = bytes("held_bytes"), r.peak_bytes = bytes("peak_bytes");
  if (reply.contains("machine")) r.peer = reply["machine"];
  if (r.status != "ok") return r;
  AttentionConfig c;
  c.batch = theirs.at("batch"), c.heads = theirs.at("heads"), c.ctx = theirs.at("ctx");
  c.head_dim = theirs.at("head_dim"), c.causal = theirs.at("causal");
  double forward = plan::attention_flops(c, Pass::forward), all = plan::attention_flops(c, Pass::forward_backward);
  const Json& samples = theirs.at("samples_ms");
  auto times = [&](const char* phase, double flops) {
    return AttentionTimes{times_of(samples.at(phase).get<std::vector<double>>(), flops), {}, {}, {}, {}};
  };
  bool both = theirs.at("pass") != "forward";
  r.phases.forward = times("forward", forward);
  if (both) r.phases.backward = times("backward", all - forward), r.phases.both = times("both", all);
  r.wall = times("wall", both ? all : forward);
  return r;
}

class AttentionPeer : public Case {
 public:
  explicit AttentionPeer(const AttentionBenchOptions& options) : options_(options) {}
  std::string text() const override { return "PyTorch: " + names(); }
  bool run(const Turn& turn, Progress&) override {
    if (turn.index > 0) return true;
    int gpu = backend_of(options_.configs[0].device).info().ordinal;
    std::vector<std::string> command = {options_.python, peer_script("torch_attention_peer.py"),
                                        "--backends",    names(),
                                        "--shapes",      shapes_of(options_.configs).dump(),
                                        "--warmup",      std::to_string(options_.warmup),
                                        "--steps",       std::to_string(options_.steps),
                                        "--seconds",     fmt::format("{}", options_.seconds),
                                        "--threads",     std::to_string(cpu_backend().info().multiprocessors),
                                        "--gpu",         std::to_string(gpu)};
    std::string why;
    Json reply = peer_reply(command, why);
    if (!why.empty())
      note_ = fmt::format("--peer: {}: {}; ours ran alone. --python names another", options_.python, why);
    try {
      if (!reply.is_null())
        for (const Json& r : reply["results"]) rows_.push_back(result_of(r, reply));
    } catch (const Json::exception& e) {
      note_ = fmt::format("--peer: its reply is not as expected: {}", message_of(e));
    }
    return !interrupted();
  }
  Json rows() override { return rows_; }
  std::vector<std::string> notes() const override {
    return note_.empty() ? std::vector<std::string>{} : std::vector{note_};
  }

 private:
  std::string names() const { return fmt::format("{}", fmt::join(options_.peers, ",")); }

  const AttentionBenchOptions& options_;
  Json rows_ = Json::array();
  std::string note_;
};

}  // namespace

std::unique_ptr<Case> attention_peer(const AttentionBenchOptions& options) {
  return std::make_unique<AttentionPeer>(options);
}

}  // namespace sinter::lab
