#include "cli/app.h"
#include "dist/launcher.h"
#include "system/process.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(Each rank is told its number by the variables that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT). They meet under a random SINTER_SECRET, unless one is set already. Rank 0 writes to the
terminal; lines of the others begin with their rank. When one fails, the others may say what they know and are stopped;
the exit code is 2, 3 or 4 if it said so itself, otherwise 5.

Examples:
  sinter launch -n 2 -- bench model --size tiny                two ranks that share the cores of this machine
  sinter launch -n 4 --threads 2 -- python3 train.py           any program that torchrun could start)";

// Whether the word begins a command of sinter's own.
bool is_command(const std::string& word) {
  for (const lab::Command& c : lab::commands())
    if (c.name.substr(0, c.name.find(' ')) == word) return true;
  return word == "show";
}

}  // namespace

lab::Command launch_command(const std::shared_ptr<std::vector<std::string>>& words) {
  auto declare = [words](lab::Flags& flags, const lab::Program&) -> lab::Command::Run {
    auto options = std::make_shared<dist::LaunchOptions>();
    flags.add("-n,--ranks", options->ranks, "N", "how many ranks (default 1)", "Ranks");
    flags.add("--threads", options->threads, "N", "CPU threads of each rank (default: the usable cores divided)",
              "Ranks");
    flags.add("--master-addr", options->master_addr, "ADDRESS", "where the ranks meet (default 127.0.0.1)", "Ranks");
    flags.add("--master-port", options->master_port, "PORT", "the port there (default: one that is free)", "Ranks");
    return [words, options] {
      options->command = *words;
      if (!words->empty() && is_command(words->front())) {
        options->program = own_executable();
        options->command.insert(options->command.begin(), "sinter");
      }
      return dist::launch(*options);
    };
  };
  return {"launch", "run a program as several ranks on this host, and end all when one fails", examples, declare,
          nullptr};
}

}  // namespace sinter::cli
