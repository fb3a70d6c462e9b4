// sinter plan simulate
#include "lab/command.h"

#include "lab/model_flags.h"
#include "lab/plan_simulate/plan_simulate.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Nothing is run, and no GPU is needed. Data parallelism and sharding are simulated with the engine's own
traced step, call by call; tensor, pipeline and context parallelism with a model's shapes.

Examples:
  sinter plan simulate --size xl --dtype bf16 --machine h200-measured
  sinter plan simulate --size xl --dtype bf16 --devices 8,64,512,4096 --shard none,parameters --plot scaling.svg
  sinter plan simulate --size xl --devices 64 --strategy naive,flat,overlap,bucketed --bucket-mb 25
  sinter plan simulate --config llama/config.json --dtype bf16 --ctx 4096 --batch 1 --accumulate 16 --devices 512 \
    --tensor 8 --pipeline 4 --interleave 2 --shard optimizer --machine h100 --network h100
  sinter plan simulate --size xl --devices 64 --slow-device 1.2        one straggler
  sinter plan simulate --size small --dtype bf16 --devices 8 --trace step.json     for Perfetto
  sinter plan simulate --size xl --machine mine.json --network ours.json)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    PlanSimulateOptions plan;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(flags, {"device", "rope_theta", "norm_eps", "memory_limit", "pass", "warmup", "steps", "no_tune",
                           "seed", "lr", "threads"});
  PlanSimulateOptions& p = g->plan;
  const char *where = "Machine", *ranks = "Devices";
  flags.add("--machine", p.machine, "NAME|FILE",
            "t4, a10, l4, l40s, 3090, 4090, 5090, a100-40, a100, h100, h200, b200, tpu-v5p by their datasheets, "
            "h200-measured, or what plan calibrate wrote (default h100)",
            where);
  flags.add("--network", p.network, "NAME|FILE",
            "h100, a100, b200, pcie4, ethernet-100g, tpu-v5p, a file, or a record of bench allreduce (default: the "
            "machine's)",
            where);
  flags.add("--devices", p.devices, "N,..", "how many there are; data ranks are what the other axes leave (default 1)",
            ranks);
  flags.add("--tensor", p.tensor, "N", "ranks that divide every matrix (default 1)", ranks);
  flags.add("--pipeline", p.pipeline, "N", "stages, each with some of the layers (default 1)", ranks);
  flags.add("--interleave", p.interleave, "N", "parts of the model on a stage (default 1)", ranks);
  flags.add("--context", p.context, "N", "ranks that divide every sequence (default 1)", ranks);
  flags.add_switch("--sequence-parallel", p.sequence_parallel, "tensor ranks divide the stream between layers too",
                   ranks);
  p.shard.declare(flags, "none");
  flags.add("--strategy", p.strategy, "NAME,..", "without sharding: naive, flat, overlap, bucketed (default bucketed)",
            "Ranks");
  flags.add("--recompute", p.recompute, "X", "part of the layers' forward pass that is computed again (default 0)",
            ranks);
  flags.add_switch("--ungated", p.ungated, "the feed-forward has one matrix in, not two", "Model");
  flags.add("--from", p.from, "graph|shapes", "what is simulated (default: the graph, where the engine runs it so)",
            ranks);
  flags.add("--slow-device", p.slow_device, "X", "one device takes X times as long (default 1)", where);
  flags.add("--slow-link", p.slow_link, "X", "collectives take X times as long (default 1)", where);
  flags.add("--trace", p.trace, "FILE", "the predicted timeline, as sinter profile writes measured ones", "Output");
  add_output_flags(flags, g->output, Plot::yes);
  return [g, program] {
    g->plan.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    return plan_simulate(g->plan, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> plan_simulate_commands() {
  return {{"plan simulate", "a step on any machine, network and number of devices, before it has run there", examples,
           declare, plan_simulate_view}};
}

}  // namespace sinter::lab
