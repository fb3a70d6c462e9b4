// A command of the laboratory. A folder of lab/ that holds a command.cpp is an experiment: the file defines
// `std::vector<Command> FOLDER_commands()`, and the build lists the folders (cmake/SinterLaboratory.cmake).
#pragma once
#include <functional>

#include "lab/flags.h"
#include "lab/output.h"
#include "lab/view.h"
#include "train/run_config.h"

namespace sinter::lab {

// What the program around the laboratory brings.
struct Program {
  MakeModel make_model;
  bool own_model = false;  // it is not the built-in one
};

struct Command {
  using Run = std::function<int()>;  // returns the exit code

  std::string name;  // "bench model", as its records name it
  std::string summary;
  std::string examples;
  // Declares the flags and says what to do once they have been read.
  std::function<Run(Flags&, const Program&)> declare;
  View (*view)(const Json& record);
};

const std::vector<Command>& commands();  // by name

}  // namespace sinter::lab
