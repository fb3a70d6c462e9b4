// sinter profile model, sinter profile attention
#include "cli/app.h"
#include "cli/attention_flags.h"
#include "cli/list.h"
#include "cli/model_flags.h"
#include "lab/profile/profile_model.h"

namespace sinter::cli {
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
  std::string profiler, top = "10";
  lab::ProfileOptions profile;
  lab::OutputOptions output;

  void add_to(CLI::App& command) {
    add_text(command, "--profiler", profiler,
             "auto (CUPTI if it can be had), cupti, or events: a pair of device events per op", "NAME", "Profile");
    add_text(command, "--range", profile.range,
             "also the kernels of ranges whose path contains this, or matches it with * and ?", "PATTERN", "Profile");
    add_text(command, "--top", top, "rows of a kernel table (default 10)", "N", "Profile");
    add_text(command, "--trace", profile.trace, "write a Chrome/Perfetto trace in Kineto's format", "FILE.json",
             "Output");
    add_output_flags(command, output, Plot::yes);
  }
  lab::ProfileOptions read() {
    profile.profiler = profiler_named(profiler);
    profile.top = number<int64_t>("--top", top);
    check(profile.top > 0, "--top must be at least 1, not {}", profile.top);
    return profile;
  }
};

void add_profile_model(CLI::App& profile, Action& action, const MakeModel& make_model) {
  CLI::App* model = profile.add_subcommand("model", "kernels by phase and range, idle time, ops against the roofline");
  model->footer(model_examples);
  struct Flags {
    ModelFlags model;
    ProfileFlags profile;
  };
  auto flags = std::make_shared<Flags>();
  add_model_flags(*model, flags->model);
  flags->profile.add_to(*model);
  model->callback([&action, flags, make_model] {
    action = [flags, make_model] {
      return lab::profile_model(flags->model.sweep(), flags->profile.read(), flags->profile.output, make_model);
    };
  });
}

void add_profile_attention(CLI::App& profile, Action& action) {
  CLI::App* attention = profile.add_subcommand("attention", "the same for attention alone");
  attention->footer(attention_examples);
  struct Flags {
    AttentionFlags attention;
    ProfileFlags profile;
  };
  auto flags = std::make_shared<Flags>();
  add_attention_flags(*attention, flags->attention);
  flags->profile.add_to(*attention);
  attention->callback([&action, flags] {
    action = [flags] {
      const AttentionFlags& a = flags->attention;
      return lab::profile_attention(a.configs(), number<int64_t>("--warmup", a.warmup),
                                    number<int64_t>("--steps", a.steps), flags->profile.read(), flags->profile.output);
    };
  });
}

}  // namespace

void add_profile(CLI::App& app, Action& action, const MakeModel& make_model) {
  CLI::App* profile = app.add_subcommand("profile", "where the time goes (profile model, profile attention)");
  profile->require_subcommand(1);
  add_profile_model(*profile, action, make_model);
  add_profile_attention(*profile, action);
}

}  // namespace sinter::cli
