// sinter compile model
#include "cli/app.h"
#include "cli/model_flags.h"
#include "lab/compile/compile_model.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(Nothing is run: a step is traced and compiled on paper, for a GPU also where there is none.
Its speed: sinter bench model --mode eager,compiled.

Examples:
  sinter compile model                                       calls and bytes before and after each pass
  sinter compile model --size xl --device cuda --explain     also what each pass did where
  sinter compile model --size tiny --dump step.html          every call and the memory plan, to look at
  sinter compile model --size tiny --dump step.json          the same for programs (.txt and .dot too)
  sinter compile model --passes none,cse,all                 what single passes do)";

}  // namespace

void add_compile(CLI::App& app, Action& action, const MakeModel& make_model) {
  CLI::App* compile = app.add_subcommand("compile", "what the compiler makes of a step (compile model)");
  compile->require_subcommand(1);
  CLI::App* model =
      compile->add_subcommand("model", "trace a pass of a Transformer, and show what each compiler pass does to it");
  model->footer(examples);
  struct Flags {
    ModelFlags model;
    lab::CompileModelOptions compile;
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  add_model_flags(*model, flags->model, Passes::none);
  model->add_flag("--explain", flags->compile.explain, "also list what each pass did where")->group("Output");
  add_text(*model, "--card", flags->compile.card,
           "the GPU to compile for, with the kernels it has: T4-16, A100-40, … (default: the one here, or H200-141)",
           "NAME", "Run");
  add_text(*model, "--dump", flags->compile.dump, "write the compiled graph to this file", "FILE.txt|.dot|.html|.json",
           "Output");
  add_output_flags(*model, flags->output, Plot::no);
  model->callback([&action, flags, make_model] {
    action = [flags, make_model] {
      flags->compile.sweep = flags->model.sweep();
      return lab::compile_model(flags->compile, flags->output, make_model);
    };
  });
}

}  // namespace sinter::cli
