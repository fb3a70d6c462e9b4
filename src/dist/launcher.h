// Starts a program once for each rank on this host, passes on what they say, and ends them all when one fails.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace sinter::dist {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;       // what each rank runs
  std::string program = {};               // the file, where the command's first word is only what it is called
  std::string master_addr = "127.0.0.1";  // where the ranks are to meet
  int master_port = 0;                    // 0: one that is free now
  int threads = 0;                        // of each rank; 0: the usable cores divided among them
  std::string job = {}, secret = {};      // what ranks know each other by; launch() makes those that are missing
  double notice_s = 1.5;                  // that the others have, when one fails, to notice and say what they know
  double grace_s = 2;                     // between asking them to stop and killing them …
  double interrupted_grace_s = 30;        // … where it is the user who wants them to, and they may have to save
};

// The variables that tell a process its rank, as torchrun sets them, SINTER_SECRET and SINTER_THREADS.
std::vector<std::pair<std::string, std::string>> rank_variables(const LaunchOptions& options, int rank);

// Rank 0 writes to our stdout and stderr; what the others write goes to stderr, line by line, with their rank before
// it. Returns the exit code: 0 when all ranks ended with 0; 2, 3 or 4 when the first to fail said so itself (bad usage,
// no memory, a numerical fault); 5 when it died of anything else; 130 when this process was interrupted, but 0 if all
// ranks ended with 0 then. A rank that only says that another has failed (5) is not called the first. No rank is left.
int launch(const LaunchOptions& options);

}  // namespace sinter::dist
