// sinter compile model
#include "lab/command.h"

#include "lab/compile/compile_model.h"
#include "lab/model_flags.h"

namespace sinter::lab {
namespace {

constexpr const char* examples =
    R"(Nothing is run: a step is traced and compiled on paper, for a GPU also where there is none.
Its speed: sinter bench model --mode eager,compiled.

Examples:
  sinter compile model                                       calls and bytes before and after each pass
  sinter compile model --size xl --device cuda --explain     also what each pass did where
  sinter compile model --size tiny --dump step.html          every call and the memory plan, to look at
  sinter compile model --size tiny --dump step.json          the same for programs (.txt and .dot too)
  sinter compile model --ranks 8 --explain                   where collectives stand, and what they keep from folding
  sinter compile model --ranks 8 --shard parameters --explain  what is gathered where, and why there
  sinter compile model --passes none,cse,all                 what single passes do)";

Command::Run declare(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    CompileModelOptions compile;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(flags, {"warmup", "steps", "no_tune", "memory_limit"});
  flags.add_switch("--explain", g->compile.explain, "also list what each pass did where", "Output");
  flags.add("--card", g->compile.card, "NAME",
            "the GPU to compile for, with the kernels it has: T4-16, A100-40, … (default: the one here, or H200-141)",
            "Run");
  add_imagined_rank_flags(flags, g->compile.ranks);
  flags.add("--dump", g->compile.dump, "FILE.txt|.dot|.html|.json", "write the compiled graph to this file", "Output");
  add_output_flags(flags, g->output, Plot::no);
  return [g, program] {
    g->compile.sweep = g->model.sweep();
    g->output.reads = {{"--config", g->model.config_file()}};
    return compile_model(g->compile, g->output, program.make_model);
  };
}

}  // namespace

std::vector<Command> compile_commands() {
  return {{"compile model", "trace a pass of a Transformer, and show what each compiler pass does to it", examples,
           declare, compile_view}};
}

}  // namespace sinter::lab
