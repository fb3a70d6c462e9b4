// sinter memory model
#include "lab/command.h"

#include "lab/memory/memory_model.h"
#include "lab/model_flags.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(The model runs two passes: the first makes gradients and moments, the second is like all later ones.

Examples:
  sinter memory model                                           peaks by category and phase, the largest allocations
  sinter memory model --predict --size 2.7B --dtype bf16        the same without a GPU; on which cards it fits
  sinter memory model --predict --size xl --card 4090-24        the cheapest change that makes it fit there
  sinter memory model --predict --size 2.7B --dtype bf16 --ranks 2,4,8 --shard optimizer,parameters   a rank of many
  sinter memory model --plot memory.html                        the timeline, to explore in a browser
  sinter memory model --snapshot memory.pickle                  for pytorch.org/memory_viz and torch.cuda._memory_viz
  sinter memory model --size 2.7B --ctx 128,256,512 --pass forward,step --dtype fp32,bf16)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    MemoryOptions memory;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(flags, {"warmup", "steps"});
  const char* group = "Memory";
  flags.add_switch("--predict", g->memory.predict, "a dry run: nothing is computed or allocated, no GPU is needed",
                   group);
  flags.add("--card", g->memory.card, "NAME", "the GPU it should fit on: T4-16, 4090-24, A100-40, …", group);
  add_imagined_rank_flags(flags, g->memory.ranks);
  flags.add("--largest", g->memory.largest, "N", "how many of the largest allocations to list (default 10)", group);
  flags.add("--snapshot", g->memory.snapshot, "FILE.pickle|.json", "write a memory snapshot as PyTorch does", "Output");
  add_output_flags(flags, g->output, Plot::yes);
  return [g, program] {
    g->memory.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    check(g->memory.largest > 0, "--largest must be at least 1, not {}", g->memory.largest);
    return memory_model(g->memory, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> memory_commands() {
  return {{"memory model", "where the memory goes: by category, phase and layer, measured or predicted", examples,
           declare, memory_view}};
}

}  // namespace sinter::lab
