// sinter precision
#include "lab/command.h"

#include "lab/precision/precision.h"

namespace sinter::lab {
namespace {

Command::Run declare(Flags& flags, const Program&) {
  struct Given {
    std::optional<std::string> device;
    uint64_t seed = 0;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  add_device_flag(flags, g->device, "Options");
  flags.add("--seed", g->seed, "N", "of the random inputs (default 0)", "Options");
  add_output_flags(flags, g->output, Plot::yes);
  return [g] { return precision_experiment(device_named(chosen_device(g->device)), g->seed, g->output); };
}

}  // namespace

std::vector<Command> precision_commands() {
  return {{"precision", "what 16-bit arithmetic does to sums, autocast types and norms",
           "Examples:\n  sinter precision\n  sinter precision --device cuda --table precision.md --plot norms.svg",
           declare, precision_view}};
}

}  // namespace sinter::lab
