// sinter bench model
#include <cmath>

#include "cli/app.h"
#include "cli/list.h"
#include "lab/bench_model.h"
#include "lab/config_file.h"

namespace sinter::cli {
namespace {

using lab::SweepOptions;

constexpr const char* examples = R"(Lists are allowed for every shape flag, --dtype, --pass and --warmup.

Examples:
  sinter bench model                                          the default model here
  sinter bench model --size small,medium --ctx 128,256        sizes against context lengths
  sinter bench model --dtype fp32,bf16 --pass forward,step    what mixed precision buys
  sinter bench model --size 2.7B --dry-run                    predicted memory, nothing run
  sinter bench model --warmup 0,1,2,5 --plot warmup.html      what skipping the warm-up does, each in a fresh process
  sinter bench model --peer torch-plain --dtype bf16          beside PyTorch, run alternately
  sinter bench model --config config.json --json out.json     a Hugging Face or sinter configuration)";

// Flags as text: parsed here, so that every complaint names its flag.
struct Flags {
  std::map<std::string, std::string> text;
  std::string config, peers;
  lab::BenchOptions bench;
  lab::OutputOptions output;
};

template <class T> T parse(const std::string& flag, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) return text;
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

SweepOptions sweep_of(Flags& flags) {
  SweepOptions given;
  given.for_each_field([&](const std::string& name, auto& field) {
    auto it = flags.text.find(name);
    if (it != flags.text.end() && !it->second.empty()) read(flag_of(name), it->second, field);
  });
  if (flags.config.empty()) return given;
  return lab::overlaid(lab::read_config_file(flags.config), given);
}

void check_peers(const std::vector<std::string>& peers, bool own_model) {
  check(peers.empty() || !own_model, "--peer: compares the built-in model only, and this program brings its own");
  for (const std::string& p : peers)
    check(p == "torch-plain" || p == "torch-best" || p == "torch-compiled",
          "--peer {}: unknown; choose torch-plain, torch-best or torch-compiled", p);
}

}  // namespace

void add_bench(CLI::App& app, Action& action, const MakeModel& make_model, bool own_model) {
  CLI::App* bench = app.add_subcommand("bench", "benchmarks (bench model)");
  bench->require_subcommand(1);
  CLI::App* model =
      bench->add_subcommand("model", "time the forward pass, backward pass and optimizer step of a Transformer");
  model->footer(examples);
  auto flags = std::make_shared<Flags>();

  auto add = [&](const char* name, const char* type, const char* help, const char* group) {
    add_text(*model, flag_of(name), flags->text[name], help, type, group);
  };
  const char *shape = "Model", *run = "Run", *out = "Output";
  add("size", "NAME,..", "tiny, mini, small, medium, large, xl, 2.7B (default: small on a GPU, tiny on a CPU)", shape);
  add("d_model", "N,..", "width; overrides the size's", shape);
  add("d_ff", "N,..", "inner width of the feed-forward", shape);
  add("layers", "N,..", "number of blocks", shape);
  add("heads", "N,..", "attention heads; must divide the width", shape);
  add("vocab", "N,..", "vocabulary (default 10000)", shape);
  add("ctx", "N,..", "context length (default 256)", shape);
  add("batch", "N,..", "sequences per step (default 4)", shape);
  add("rope_theta", "X", "RoPE's base (default 10000)", shape);
  add("norm_eps", "X", "RMSNorm's epsilon (default 1e-5)", shape);
  add_text(*model, "--config", flags->config, "a sinter record, or a Hugging Face config.json; flags override it",
           "FILE", shape);
  add("device", "cpu|cuda", "where to run (default: cuda if there is a GPU)", run);
  add("dtype", "NAME,..", "fp32, tf32, bf16, fp16; 16-bit means mixed precision with fp32 masters (default fp32)", run);
  add("pass", "NAME,..", "forward, forward-backward, step (default step)", run);
  add("warmup", "N,..", "untimed passes first (default 5); several: each in a fresh process, with the one-time costs",
      run);
  add("steps", "N", "timed passes (default 10)", run);
  add("seed", "N", "of parameters and tokens (default 0)", run);
  add("lr", "X", "AdamW's learning rate (default 1e-4)", run);
  add("clip", "X", "clip the gradient's global norm to this; 0 does not (default 0)", run);
  add("threads", "N", "CPU threads (default: all this process may use)", run);
  add_text(*model, "--peer", flags->peers, "torch-plain, torch-best, torch-compiled: run PyTorch alternately with ours",
           "NAME,..", run);
  add_text(*model, "--python", flags->bench.python, "the python that has PyTorch (default python3)", "PROGRAM", run);
  model->add_flag("--dry-run", flags->bench.dry_run, "predict memory, run nothing")->group(run);
  model->add_flag("--published", flags->bench.published, "show published figures beside ours")->group(out);
  model->add_flag("--child", flags->bench.child, "")->group("");
  model->add_flag("--itemise", flags->bench.itemise, "")->group("");
  add_output_flags(*model, flags->output, Plot::yes);

  model->callback([&action, flags, make_model, own_model] {
    action = [flags, make_model, own_model] {
      if (!flags->peers.empty()) flags->bench.peers = split("--peer", flags->peers);
      check_peers(flags->bench.peers, own_model);
      flags->bench.sweep = sweep_of(*flags);
      return lab::bench_model(flags->bench, flags->output, make_model);
    };
  });
}

}  // namespace sinter::cli
