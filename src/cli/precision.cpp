// sinter precision
#include "lab/precision/precision.h"

#include "cli/app.h"
#include "cli/list.h"

namespace sinter::cli {

void add_precision(CLI::App& app, Action& action) {
  CLI::App* c = app.add_subcommand("precision", "what 16-bit arithmetic does to sums, autocast types and norms");
  c->footer("Examples:\n  sinter precision\n  sinter precision --device cuda --table precision.md --plot norms.svg");
  struct Flags {
    std::string device, seed = "0";
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  add_device_flag(*c, flags->device, "Options");
  add_text(*c, "--seed", flags->seed, "of the random inputs (default 0)", "N", "Options");
  add_output_flags(*c, flags->output, Plot::yes);
  c->callback([&action, flags] {
    action = [flags] {
      return lab::precision_experiment(device_named(device_of(flags->device)), number<uint64_t>("--seed", flags->seed),
                                       flags->output);
    };
  });
}

}  // namespace sinter::cli
