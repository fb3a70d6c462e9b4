#include <cstdlib>
#include <unistd.h>

#include "cli/app.h"
#include "core/check.h"
#include "dist/launcher.h"
#include "system/process.h"

namespace sinter::cli {
namespace {

constexpr const char* examples =
    R"(Each rank is told its number by the variables that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). They meet under a random SINTER_SECRET, unless one is
set already or --secret-stdin gives one. Rank 0 writes to the terminal; lines of the others begin
with their rank. The standard input of ranks is empty; --secret-stdin takes one line of ours and
leaves the rest unread. When a rank fails, the others may say what they know and are stopped; the
exit code is 2, 3 or 4 if it said so itself, otherwise 5; then --restarts starts them again.

Examples:
  sinter launch -n 2 -- bench model --size tiny                two ranks that share the cores of this machine
  sinter launch -n 4 --threads 2 -- python3 train.py           any program that torchrun could start
  sinter launch -n 2 --secret-stdin -- bench ddp < secret.txt  a secret of your own
  sinter launch -n 8 --hosts a,b -- bench ddp                  eight ranks on each of two hosts
  sinter launch -n 2 --restarts 3 -- train --text a.txt --out run --checkpoint-every 100 --resume-if-possible)";

// Whether the word begins a command of sinter's own.
bool is_command(const std::string& word) {
  for (const lab::Command& c : lab::commands())
    if (c.name.substr(0, c.name.find(' ')) == word) return true;
  return word == "show";
}

std::string secret_from_stdin() {
  constexpr size_t longest = 2048;
  const char* set = std::getenv("SINTER_SECRET");
  check(!(set && *set), "--secret-stdin: SINTER_SECRET is set as well; unset it, or leave the flag out");
  std::string line;
  // A byte at a time: what follows the line is not ours.
  for (char c; line.size() <= longest && read(STDIN_FILENO, &c, 1) == 1 && c != '\n';) line += c;
  check(!line.empty(),
        "--secret-stdin: the first line of standard input is empty; put a long random text there, or leave the flag "
        "out: then the secret is random");
  check(line.size() <= longest && line.find('\0') == std::string::npos,
        "--secret-stdin: the first line of standard input is no text of at most {} bytes; put a shorter one there, "
        "without zero bytes",
        longest);
  return line;
}

}  // namespace

lab::Command launch_command(const std::shared_ptr<std::vector<std::string>>& words) {
  auto declare = [words](lab::Flags& flags, const lab::Program&) -> lab::Command::Run {
    auto options = std::make_shared<dist::LaunchOptions>();
    auto secret_stdin = std::make_shared<bool>(false);
    flags.add("-n,--ranks", options->ranks, "N", "how many ranks (default 1)", "Ranks");
    flags.add("--threads", options->threads, "N", "CPU threads of each rank (default: the usable cores divided)",
              "Ranks");
    flags.add("--master-addr", options->master_addr, "ADDRESS", "where the ranks meet (default 127.0.0.1)", "Ranks");
    flags.add("--master-port", options->master_port, "PORT", "the port there (default: one that is free)", "Ranks");
    flags.add("--restarts", options->restarts, "N",
              "when a rank has died, start all of them again, N times at most (default 0)", "Ranks");
    flags.add_switch("--mps", options->mps,
                     "ranks that share a GPU run on it at the same time (NVIDIA's MPS); a fault of one then ends all",
                     "Ranks");
    flags.add_switch("--secret-stdin", *secret_stdin,
                     "the secret that ranks know each other by is the first line of standard input", "Ranks");
    const char* several = "Several hosts";
    flags.add("--hosts", options->hosts, "NAME,..",
              "start -n ranks on each, by ssh; rank 0 is on the first, and sinter has the same path on all", several);
    flags.add("--nodes", options->nodes, "N", "launchers that were started by hand or a job's script, one on each host",
              several);
    flags.add("--node", options->node, "N", "which of them this is, from 0", several);
    flags.add_switch("--until-stdin-ends", options->until_stdin_ends,
                     "stop all ranks when standard input ends: when whoever started this is gone", several);
    return [words, options, secret_stdin] {
      if (*secret_stdin) options->secret = secret_from_stdin();
      options->command = *words;
      if (!words->empty() && is_command(words->front())) {
        options->program = own_executable();
        options->command.insert(options->command.begin(), "sinter");
      }
      return dist::launch(*options);
    };
  };
  return {"launch", "run a program as several ranks, and end all when one fails", examples, declare, nullptr};
}

}  // namespace sinter::cli
