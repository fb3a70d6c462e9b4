// A command line that was not understood.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace sinter::cli {

// What is wrong with it, what was probably meant, and where to look: one line. `root` is what could not parse it.
std::string misuse(const CLI::App& root, const CLI::ParseError& error);

}  // namespace sinter::cli
