// sinter profile model
#include "cli/app.h"
#include "cli/list.h"
#include "cli/model_flags.h"
#include "lab/profile_model.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(Lists are allowed for every shape flag, --dtype and --pass; several configurations make a table with a row each.

Examples:
  sinter profile model                                         where the time of a training step goes
  sinter profile model --dtype bf16 --range attn               the kernels of attention in a table of their own
  sinter profile model --range 'step/backward/layers.3/*'      one layer; with * and ? the whole path must match
  sinter profile model --trace step.json                       for ui.perfetto.dev and HolisticTraceAnalysis
  sinter profile model --size small,medium --ctx 128,1024 --table profile.md)";

}  // namespace

void add_profile(CLI::App& app, Action& action, const MakeModel& make_model) {
  CLI::App* profile = app.add_subcommand("profile", "where the time goes (profile model)");
  profile->require_subcommand(1);
  CLI::App* model = profile->add_subcommand("model", "kernels by phase and range, idle time, ops against the roofline");
  model->footer(examples);
  struct Flags {
    ModelFlags model;
    std::string profiler, top = "10";
    lab::ProfileOptions profile;
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  add_model_flags(*model, flags->model);
  add_text(*model, "--profiler", flags->profiler,
           "auto (CUPTI if it can be had), cupti, or events: a pair of device events per op", "NAME", "Profile");
  add_text(*model, "--range", flags->profile.range,
           "also the kernels of ranges whose path contains this, or matches it with * and ?", "PATTERN", "Profile");
  add_text(*model, "--top", flags->top, "rows of a kernel table (default 10)", "N", "Profile");
  add_text(*model, "--trace", flags->profile.trace, "write a Chrome/Perfetto trace in Kineto's format", "FILE.json",
           "Output");
  add_output_flags(*model, flags->output, Plot::yes);
  model->callback([&action, flags, make_model] {
    action = [flags, make_model] {
      flags->profile.sweep = flags->model.sweep();
      flags->profile.profiler = lab::profiler_named(flags->profiler);
      flags->profile.top = number<int64_t>("--top", flags->top);
      check(flags->profile.top > 0, "--top must be at least 1, not {}", flags->profile.top);
      return lab::profile_model(flags->profile, flags->output, make_model);
    };
  });
}

}  // namespace sinter::cli
