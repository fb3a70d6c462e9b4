// Other processes (fresh ones of ourselves, and peers), and being interrupted.
#pragma once
#include <string>
#include <vector>

namespace sinter {

struct ProcessResult {
  int exit_code = 0;  // 128 + signal if one ended it
  std::string output;
};
// Runs a program (found on PATH) and waits; stdout is collected. stderr is ours, or dropped when quiet.
ProcessResult run_process(const std::vector<std::string>& arguments, bool quiet = false);

std::string own_executable();

// Ctrl-C sets a flag, so that a sweep can stop between steps and keep what it has. A second one ends the process at once.
void catch_interrupts();
bool interrupted();
constexpr int interrupted_exit_code = 130;
std::string interrupted_text(size_t finished, size_t all);  // what to tell people then

}  // namespace sinter
