// Being interrupted.
#pragma once
namespace sinter {

// Ctrl-C, SIGTERM or a lost terminal set a flag, so that a sweep can stop between steps and keep what it has. A second
// one ends the process at once.
void catch_interrupts();
bool interrupted();
constexpr int interrupted_exit_code = 130;

}  // namespace sinter
