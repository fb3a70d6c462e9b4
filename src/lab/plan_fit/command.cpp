// sinter plan fit
#include "lab/command.h"

#include "lab/model_flags.h"
#include "lab/plan_fit/plan_fit.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Nothing is run, and no GPU is needed: memory is predicted to the byte by the same calls through the same
allocator (sinter memory model --predict), time by simulating the compiled step (sinter plan simulate).

Examples:
  sinter plan fit --size xl --gpus 8 --memory 80GB
  sinter plan fit --size 2.7B --ctx 1024 --gpus 4 --machine a100-40 --global-batch 128
  sinter plan fit --config llama/config.json --ctx 4096 --gpus 8 --machine h100 --dtype bf16)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    PlanFitOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(
      flags, {"device", "batch", "rope_theta", "norm_eps", "mode", "passes", "memory_budget", "memory_limit", "pass",
              "warmup", "steps", "accumulate", "no_tune", "seed", "lr", "threads"});
  PlanFitOptions& p = g->plan;
  const char *where = "Machine", *ranks = "Devices";
  flags.add("--gpus", p.gpus, "N", "devices that train together (default 1)", ranks);
  flags.add("--global-batch", p.global_batch, "N", "sequences of a step, of all devices (default 8 for each)", ranks);
  flags.add("--shard", p.shard, "LEVEL,..", "none, optimizer, gradients, parameters (default: all of them)", ranks);
  flags.add("--machine", p.machine, "NAME|FILE", "as of plan simulate (default h100)", where);
  flags.add("--memory", p.memory, "SIZE", "of a device, 80GB or 80GiB (default: the machine's)", where);
  flags.add("--network", p.network, "NAME|FILE", "as of plan simulate (default: the machine's)", where);
  add_output_flags(flags, g->output, Plot::no);
  return [g, program] {
    g->plan.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    return plan_fit(g->plan, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> plan_fit_commands() {
  return {{"plan fit", "which precision, sharding, recomputation and micro-batch fit, and which is fastest", examples,
           declare, plan_fit_view}};
}

}  // namespace sinter::lab
