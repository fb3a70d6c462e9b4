#include "system/signals.h"

#include <csignal>

namespace sinter {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
void on_interrupt(int) { interrupt_seen = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = int(SA_RESETHAND);  // the second Ctrl-C has its usual meaning
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);  // a batch system's way to say the same
  struct sigaction before = {};          // and a terminal's, when it goes away; nohup's programs are to outlive it
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }

}  // namespace sinter
