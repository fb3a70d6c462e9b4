// sinter bench model
#include "lab/command.h"

#include "lab/bench/bench_model.h"
#include "lab/model_flags.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Lists are allowed for every shape flag, --dtype, --attention, --mode, --passes, --pass and --warmup.

Examples:
  sinter bench model                                          the default model here
  sinter bench model --size small,medium --ctx 128,256        sizes against context lengths
  sinter bench model --dtype fp32,bf16 --pass forward,step    what mixed precision buys
  sinter bench model --attention naive,flash --ctx 1024       what not keeping the scores buys
  sinter bench model --mode eager,compiled                    what tracing and replaying the step as one buys
  sinter bench model --mode compiled --accumulate 8           a step of eight micro-batches
  sinter bench model --ablate                                 step time as the compiler's passes are added one by one
  sinter bench model --size 2.7B --dry-run                    predicted memory, nothing run
  sinter bench model --warmup 0,1,2,5 --plot warmup.html      what skipping the warm-up does, each in a fresh process
  sinter bench model --peer torch-plain --dtype bf16          beside PyTorch, run alternately
  sinter bench model --config config.json --json out.json     a Hugging Face or sinter configuration)";

struct Given {
  ModelFlags model;
  BenchOptions bench;
  OutputOptions output;
  std::string child;  // JSON: what the sinter that started this one wants
};

// What a fresh process of ours is told: fresh_process.cpp.
void read_child(Given& g) {
  Json options = Json::parse(g.child, nullptr, false);
  check(options.is_object() && options.contains("config"), "--child: sinter itself gives it to fresh processes");
  g.bench.sweep = sweep_from_json(options["config"], "--child");
  g.bench.sweep.device = chosen_device(g.bench.sweep.device);
  g.bench.itemise = options.value("itemise", false);
  g.bench.child = true;
}

void check_peers(const Given& g, bool own_model) {
  const std::vector<std::string>& peers = g.bench.peers;
  check(peers.empty() || !own_model, "--peer: compares the built-in model only, and this program brings its own");
  for (const std::string& p : peers)
    check(p == "torch-plain" || p == "torch-best" || p == "torch-compiled",
          "--peer {}: unknown; choose torch-plain, torch-best or torch-compiled", p);
  int64_t accumulate = g.bench.sweep.accumulate.value_or(1);
  check(peers.empty() || accumulate == 1, "--peer with --accumulate {}: the peers take a step of one batch",
        accumulate);
}

Command::Run declare(Flags& flags, const Program& program) {
  auto g = std::make_shared<Given>();
  g->model.declare(flags);
  const char *run = "Run", *out = "Output";
  flags.add("--peer", g->bench.peers, "NAME,..",
            "torch-plain, torch-best, torch-compiled: PyTorch alternately with ours", run);
  flags.add("--python", g->bench.python, "PROGRAM", python_help, run);
  flags.add_switch("--ablate", g->bench.ablate, "eager, then compiled with the compiler's passes added one by one",
                   run);
  flags.add_switch("--dry-run", g->bench.dry_run, "predict memory, run nothing", run);
  flags.add_switch("--published", g->bench.published, "show published figures beside ours", out);
  flags.add("--child", g->child, "JSON", "", "");
  add_output_flags(flags, g->output, Plot::yes);
  return [g, program] {
    if (g->child.empty()) g->bench.sweep = g->model.sweep();
    else read_child(*g);
    g->output.reads = {{"--config", g->model.config_file()}};
    check_peers(*g, program.own_model);
    return bench_model(g->bench, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> bench_commands() {
  return {{"bench model", "time the forward pass, backward pass and optimizer step of a Transformer", examples, declare,
           bench_model_view}};
}

}  // namespace sinter::lab
