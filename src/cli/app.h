// The command line: reads it into the flags of the laboratory's commands, and turns errors into a line and an exit
// code.
#pragma once
#include "lab/command.h"

namespace sinter::cli {

// What belongs to no experiment. The arguments that have no flag are read into what is handed over.
lab::Command show_command(const std::shared_ptr<std::vector<std::string>>& files);
lab::Command launch_command(const std::shared_ptr<std::vector<std::string>>& words);

int run(int argc, char** argv, const lab::Program& program);

}  // namespace sinter::cli
