// The flags that say which model to run and how: the same for every command that runs one.
#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "lab/sweep.h"

namespace sinter::cli {

// Kept as text and parsed by sweep(), so that every complaint names its flag.
struct ModelFlags {
  std::map<std::string, std::string> text;
  std::string config;
  lab::SweepOptions sweep() const;
};
// How many passes the command runs: as many as it is told, as many as it decides, or none.
enum class Passes { timed, fixed, none };
void add_model_flags(CLI::App& command, ModelFlags& flags, Passes passes = Passes::timed);

}  // namespace sinter::cli
