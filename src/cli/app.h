// The command line: reads it into the flags of the laboratory's commands, and turns errors into a line and an exit
// code.
#pragma once
#include "lab/command.h"

namespace sinter::cli {

int run(int argc, char** argv, const lab::Program& program);

}  // namespace sinter::cli
