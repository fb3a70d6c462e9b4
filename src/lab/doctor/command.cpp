// sinter doctor
#include "lab/command.h"

#include "lab/doctor/doctor.h"

namespace sinter::lab {
namespace {

Command::Run declare(Flags& flags, const Program&) {
  struct Given {
    DoctorOptions doctor;
    OutputOptions output;
  };
  auto g = std::make_shared<Given>();
  flags.add_switch("--remeasure", g->doctor.remeasure, "measure the peaks again instead of reading the cache",
                   "Options");
  flags.add("--python", g->doctor.python, "PROGRAM", "the python to look for PyTorch in (default python3)", "Options");
  add_output_flags(flags, g->output, Plot::no);
  return [g] { return doctor(g->doctor, g->output); };
}

}  // namespace

std::vector<Command> doctor_commands() {
  return {{"doctor", "this machine: libraries, what is missing and what that disables, measured peaks",
           "Examples:\n  sinter doctor\n  sinter doctor --remeasure --json machine.json", declare, doctor_view}};
}

}  // namespace sinter::lab
