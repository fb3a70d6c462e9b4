// sinter profile model, sinter profile attention
#include "lab/command.h"

#include "lab/attention/sweep.h"
#include "lab/model_flags.h"
#include "lab/profile/profile_model.h"

namespace sinter::lab {
namespace {

constexpr const char* model_examples =
    R"(Lists are allowed for every shape flag, --dtype and --pass; several configurations make a table with a row each.

Examples:
  sinter profile model                                         where the time of a training step goes
  sinter profile model --dtype bf16 --range attn               the kernels of attention in a table of their own
  sinter profile model --range 'step/backward/layers.3/*'      one layer; with * and ? the whole path must match
  sinter profile model --trace step.json                       for ui.perfetto.dev and HolisticTraceAnalysis
  sinter profile model --size small,medium --ctx 128,1024 --table profile.md)";

constexpr const char* attention_examples = R"(Lists are allowed for the shape flags, --dtype, --attention and --pass.

Examples:
  sinter profile attention --ctx 1024,4096 --head-dim 64 --dtype bf16
  sinter profile attention --attention naive,flash --ctx 4096
  sinter profile attention --pass forward --trace attention.json)";

// What both commands take.
struct ProfileFlags {
  std::string profiler;
  ProfileOptions options;
  OutputOptions output;

  void declare(Flags& flags) {
    flags.add("--profiler", profiler, "NAME",
              "auto (CUPTI if it can be had), cupti, or events: a pair of device events per op", "Profile");
    flags.add("--range", options.range, "PATTERN",
              "also the kernels of ranges whose path contains this, or matches it with * and ?", "Profile");
    flags.add("--top", options.top, "N", "rows of a kernel table (default 10)", "Profile");
    flags.add("--trace", options.trace, "FILE.json", "write a Chrome/Perfetto trace in Kineto's format", "Output");
    add_output_flags(flags, output, Plot::yes);
  }
  void check_values() {
    options.profiler = profiler_named(profiler);
    check(options.top > 0, "--top must be at least 1, not {}", options.top);
  }
};

Command::Run declare_model(Flags& flags, const Program& program) {
  struct Given {
    ModelFlags model;
    ProfileFlags profile;
  };
  auto g = std::make_shared<Given>();
  g->model.declare(flags);
  g->profile.declare(flags);
  return [g, program] {
    g->profile.check_values();
    g->profile.output.reads = {{"--config", g->model.config_file()}};
    return profile_model(g->model.sweep(), g->profile.options, g->profile.output, program.make_model);
  };
}

Command::Run declare_attention(Flags& flags, const Program&) {
  struct Given {
    AttentionSweep attention;
    ProfileFlags profile;
  };
  AttentionSweep defaults;
  defaults.batch = {8}, defaults.heads = {1}, defaults.ctx = {1024}, defaults.head_dim = {64};
  defaults.dtype = {"fp32"}, defaults.attention = {"auto"}, defaults.pass = {"forward-backward"};
  defaults.mode = {"eager"}, defaults.warmup = 5, defaults.steps = 10;
  auto g = std::make_shared<Given>();
  g->attention.declare(flags, defaults, {"mode", "passes"});
  g->profile.declare(flags);
  return [g, defaults] {
    g->profile.check_values();
    g->attention.fill_in(defaults);
    return profile_attention(g->attention.configs(), *g->attention.warmup, *g->attention.steps, g->profile.options,
                             g->profile.output);
  };
}

}  // namespace

std::vector<Command> profile_commands() {
  return {{"profile model", "kernels by phase and range, idle time, ops against the roofline", model_examples,
           declare_model, profile_view},
          {"profile attention", "the same for attention alone", attention_examples, declare_attention, profile_view}};
}

}  // namespace sinter::lab
