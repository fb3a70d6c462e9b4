// sinter doctor
#include "lab/doctor/doctor.h"

#include "cli/app.h"

namespace sinter::cli {

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* c =
      app.add_subcommand("doctor", "this machine: libraries, what is missing and what that disables, measured peaks");
  c->footer("Examples:\n  sinter doctor\n  sinter doctor --remeasure --json machine.json");
  struct Flags {
    lab::DoctorOptions doctor;
    lab::OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  c->add_flag("--remeasure", flags->doctor.remeasure, "measure the peaks again instead of reading the cache");
  add_text(*c, "--python", flags->doctor.python, "the python to look for PyTorch in (default python3)", "PROGRAM",
           "Options");
  add_output_flags(*c, flags->output, Plot::no);
  c->callback([&action, flags] { action = [flags] { return lab::doctor(flags->doctor, flags->output); }; });
}

}  // namespace sinter::cli
