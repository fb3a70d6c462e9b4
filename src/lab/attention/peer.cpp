// PyTorch's attention for the same shapes.
#include <algorithm>

#include "lab/attention/bench_attention.h"
#include "lab/peer_script.h"

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

Json result_of(Json r, const std::string& torch) {
  AttentionConfig c;
  c.batch = r["batch"], c.heads = r["heads"], c.ctx = r["ctx"], c.head_dim = r["head_dim"], c.causal = r["causal"];
  double forward = plan::attention_flops(c, Pass::forward), all = plan::attention_flops(c, Pass::forward_backward);
  r["engine"] = fmt::format("torch {} ({})", r["attention"].get<std::string>(), torch);
  if (r["status"] != "ok") return r;
  bool both = r["pass"] != "forward";
  Json samples = r["samples_ms"];
  r.erase("samples_ms");
  auto add = [&](const char* phase, double flops) {
    r["phases"][phase] = phase_json(samples[phase].get<std::vector<double>>(), flops);
  };
  add("forward", forward);
  if (both) add("backward", all - forward), add("both", all);
  r["wall"] = phase_json(samples["wall"].get<std::vector<double>>(), both ? all : forward);
  return r;
}

}  // namespace

Json attention_peer_results(const AttentionBenchOptions& options, Json& notes, Progress& progress) {
  auto note = [&](const std::string& text) {
    notes.push_back(text);
    progress.done(text);
    return Json::array();
  };
  std::string names;
  for (const std::string& p : options.peers) names += (names.empty() ? "" : ",") + p;
  progress.now("PyTorch: " + names);
  int gpu = backend_of(options.configs[0].device).info().ordinal;
  std::vector<std::string> command = {options.python, peer_script("torch_attention_peer.py"),
                                      "--backends",   names,
                                      "--shapes",     shapes_of(options.configs).dump(),
                                      "--warmup",     std::to_string(options.warmup),
                                      "--steps",      std::to_string(options.steps),
                                      "--seconds",    fmt::format("{}", options.seconds),
                                      "--threads",    std::to_string(cpu_backend().info().multiprocessors),
                                      "--gpu",        std::to_string(gpu)};
  std::string why;
  Json reply = peer_reply(command, why);
  if (!why.empty())
    return note(fmt::format("--peer: {}: {}; ours ran alone. --python names another", options.python, why));
  if (reply.is_null()) return Json::array();
  Json results = Json::array();
  for (const Json& r : reply["results"]) results.push_back(result_of(r, reply.value("torch", "?")));
  return results;
}

}  // namespace sinter::lab
