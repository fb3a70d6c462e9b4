// sinter bench model
#include "cli/app.h"
#include "cli/list.h"
#include "cli/model_flags.h"
#include "lab/bench/bench_model.h"

namespace sinter::cli {
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

struct Flags {
  ModelFlags model;
  std::string peers;
  bool ablate = false;
  lab::BenchOptions bench;
  lab::OutputOptions output;
};

void check_peers(const std::vector<std::string>& peers, bool own_model) {
  check(peers.empty() || !own_model, "--peer: compares the built-in model only, and this program brings its own");
  for (const std::string& p : peers)
    check(p == "torch-plain" || p == "torch-best" || p == "torch-compiled",
          "--peer {}: unknown; choose torch-plain, torch-best or torch-compiled", p);
}

}  // namespace

void add_bench(CLI::App& app, Action& action, const MakeModel& make_model, bool own_model) {
  CLI::App* bench = app.add_subcommand("bench", "benchmarks (bench model, bench attention)");
  bench->require_subcommand(1);
  CLI::App* model =
      bench->add_subcommand("model", "time the forward pass, backward pass and optimizer step of a Transformer");
  model->footer(examples);
  auto flags = std::make_shared<Flags>();

  add_model_flags(*model, flags->model);
  const char *run = "Run", *out = "Output";
  add_text(*model, "--peer", flags->peers, "torch-plain, torch-best, torch-compiled: run PyTorch alternately with ours",
           "NAME,..", run);
  add_text(*model, "--python", flags->bench.python, "the python that has PyTorch (default python3)", "PROGRAM", run);
  model->add_flag("--ablate", flags->ablate, "eager, then compiled with the compiler's passes added one by one")
      ->group(run);
  model->add_flag("--dry-run", flags->bench.dry_run, "predict memory, run nothing")->group(run);
  model->add_flag("--published", flags->bench.published, "show published figures beside ours")->group(out);
  model->add_flag("--child", flags->bench.child, "")->group("");
  model->add_flag("--itemise", flags->bench.itemise, "")->group("");
  add_output_flags(*model, flags->output, Plot::yes);

  model->callback([&action, flags, make_model, own_model] {
    action = [flags, make_model, own_model] {
      if (!flags->peers.empty()) flags->bench.peers = split("--peer", flags->peers);
      check_peers(flags->bench.peers, own_model);
      flags->bench.sweep = flags->model.sweep();
      check(flags->bench.peers.empty() || flags->bench.sweep.accumulate.value_or(1) == 1,
            "--peer with --accumulate {}: the peers take a step of one batch",
            flags->bench.sweep.accumulate.value_or(1));
      if (flags->ablate) {
        check(flags->bench.sweep.mode.empty() && flags->bench.sweep.passes.empty(),
              "--ablate: it chooses --mode and --passes itself; leave them out");
        flags->bench.sweep.mode = {"eager", "compiled"};
        flags->bench.sweep.passes = {"none"};
        std::string on;
        for (const std::string& name : compile::pass_names())
          flags->bench.sweep.passes.push_back(on += (on.empty() ? "" : "+") + name);
      }
      return lab::bench_model(flags->bench, flags->output, make_model);
    };
  });
  add_bench_attention(*bench, action);
}

}  // namespace sinter::cli
