// sinter plan cost
#include "lab/command.h"

#include "lab/model_flags.h"
#include "lab/plan_cost/plan_cost.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Nothing is run. Every result stands beside its equation and the numbers put in, to be checked by
hand; docs/plan.md explains the equations. The exact peak: sinter memory model --predict.

Examples:
  sinter plan cost --size xl                                    parameters, FLOPs, memory, checkpointing
  sinter plan cost --size xl --data 8 --shard parameters        what eight ranks divide, and what they send
  sinter plan cost --size 2.7B --dtype bf16 --data 4 --tensor 2 --shard optimizer
  sinter plan cost --config config.json --data 64 --bandwidth 5e10 --flops 4e14 --memory 40
  sinter plan cost --preset xxl                                 220 billion parameters on TPUs
  sinter plan cost --preset xxl --data 8 --tensor 8             the same on another mesh)";

Command::Run declare(Flags& flags, const Program&) {
  struct Given {
    ModelFlags model;
    PlanCostOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(
      flags, {"rope_theta", "norm_eps", "rope_scaling", "device", "deterministic", "mode", "passes", "memory_budget",
              "memory_limit", "pass", "warmup", "steps", "accumulate", "no_tune", "seed", "lr", "clip", "threads"});
  PlanCostOptions& p = g->plan;
  flags.add("--preset", p.preset, "NAME", "xxl: a worked example, in place of the flags of a model", "Model");
  const char *ranks = "Ranks", *machine = "Machine";
  flags.add("--data", p.data, "N", "data-parallel ranks; each has --batch sequences (default 1)", ranks);
  flags.add("--tensor", p.tensor, "N", "ranks that divide every matrix; --data times so many devices (default 1)",
            ranks);
  flags.add("--shard", p.shard, "LEVEL",
            "what data ranks divide: none, optimizer, gradients, parameters (ZeRO-1, -2, -3) (default none)", ranks);
  flags.add("--flops", p.flops, "X", "rate of a device in FLOP/s (default: an H100's for --dtype)", machine);
  flags.add("--bandwidth", p.bandwidth, "X", "of a link, in bytes per second each way (default 4.5e11, NVLink 4)",
            machine);
  flags.add("--links", p.links, "N,N", "links that carry the data axis, and the tensor axis (default 1,1)", machine);
  flags.add("--memory", p.memory, "GB", "of a device, in 10⁹ bytes (default 80)", machine);
  flags.add("--call-us", p.call_us, "X", "what a collective costs beside its bytes, in µs (default 20)", machine);
  add_output_flags(flags, g->output, Plot::no);
  return [g] {
    g->plan.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    return plan_cost(g->plan, g->output);
  };
}

}  // namespace

std::vector<Command> plan_cost_commands() {
  return {{"plan cost", "what a step costs on one device or many, by equations that can be checked by hand", examples,
           declare, plan_cost_view}};
}

}  // namespace sinter::lab
