// sinter memory model
#include "cli/app.h"
#include "cli/list.h"
#include "cli/model_flags.h"
#include "lab/memory/memory_model.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(The model runs two passes: the first makes gradients and moments, the second is like all later ones.

Examples:
  sinter memory model                                           peaks by category and phase, the largest allocations
  sinter memory model --predict --size 2.7B --dtype bf16        the same without a GPU; on which cards it fits
  sinter memory model --predict --size xl --card 4090-24        the cheapest change that makes it fit there
  sinter memory model --plot memory.html                        the timeline, to explore in a browser
  sinter memory model --snapshot memory.pickle                  for pytorch.org/memory_viz and torch.cuda._memory_viz
  sinter memory model --size 2.7B --ctx 128,256,512 --pass forward,step --dtype fp32,bf16)";

}  // namespace

void add_memory(CLI::App& app, Action& action, const MakeModel& make_model) {
  CLI::App* memory = app.add_subcommand("memory", "where the memory goes (memory model)");
  memory->require_subcommand(1);
  CLI::App* model = memory->add_subcommand("model", "memory by category, phase and layer, measured or predicted");
  model->footer(examples);
  struct Flags {
    ModelFlags model;
    std::string largest = "10";
    lab::MemoryOptions memory;
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  add_model_flags(*model, flags->model, Passes::fixed);
  model->add_flag("--predict", flags->memory.predict, "a dry run: nothing is computed or allocated, no GPU is needed")
      ->group("Memory");
  add_text(*model, "--card", flags->memory.card, "the GPU it should fit on: T4-16, 4090-24, A100-40, …", "NAME",
           "Memory");
  add_text(*model, "--largest", flags->largest, "how many of the largest allocations to list (default 10)", "N",
           "Memory");
  add_text(*model, "--snapshot", flags->memory.snapshot, "write a memory snapshot as PyTorch does", "FILE.pickle|.json",
           "Output");
  add_output_flags(*model, flags->output, Plot::yes);
  model->callback([&action, flags, make_model] {
    action = [flags, make_model] {
      flags->memory.sweep = flags->model.sweep();
      flags->memory.largest = number<int64_t>("--largest", flags->largest);
      check(flags->memory.largest > 0, "--largest must be at least 1, not {}", flags->memory.largest);
      return lab::memory_model(flags->memory, flags->output, make_model);
    };
  });
}

}  // namespace sinter::cli
