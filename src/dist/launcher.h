// Starts a program once for each rank, passes on what they say, and ends them all when one fails: on this host, or by
// ssh on several, each of which has a launcher of its own.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "system/process.h"

namespace sinter::dist {

struct LaunchOptions {
  int ranks = 1;                          // on this host; with `hosts` on each
  std::vector<std::string> command;       // what each rank runs
  std::string program = {};               // the file, where the command's first word is only what it is called
  std::string master_addr = "127.0.0.1";  // where the ranks are to meet
  int master_port = 0;                    // 0: one that is free now
  int threads = 0;                        // of each rank; 0: the usable cores divided among them
  std::string job = {}, secret = {};      // what ranks know each other by; launch() makes those that are missing
  std::vector<std::string> hosts = {};    // a launcher on each, by ssh
  int nodes = 1, node = 0;                // such launchers, and which of them this is
  bool until_stdin_ends = false;          // stop when standard input does: whoever started this has gone
  int restarts = 0;                       // how often all ranks are started again when one has died
  bool mps = false;                       // ranks that share a GPU run on it at the same time: mps.h
  double notice_s = 1.5;                  // that the others have, when one fails, to notice and say what they know
  double grace_s = 2;                     // between asking them to stop and killing them …
  double interrupted_grace_s = 30;        // … where it is the user who wants them to, and they may have to save
};

// What a launcher starts: a rank, or a launcher on another host.
struct LaunchedProgram {
  std::string name;       // "rank 1"
  std::string prefix;     // before its lines; what has none comes from a launcher
  bool is_first = false;  // has our stdout and stderr
  std::vector<std::string> command;
  ProcessOptions process;
};
std::vector<LaunchedProgram> programs_of_hosts(const LaunchOptions& options);  // hosts_launcher.cpp

// The variables that tell a process its rank, as torchrun sets them, SINTER_SECRET and SINTER_THREADS. `rank`: of those
// on this host.
std::vector<std::pair<std::string, std::string>> rank_variables(const LaunchOptions& options, int rank);

// Rank 0 writes to our stdout and stderr; what the others write goes to stderr, line by line, with their rank before
// it. Returns the exit code: 0 when all ranks ended with 0; 2, 3 or 4 when the first to fail said so itself (bad usage,
// no memory, a numerical fault); 5 when it died of anything else; 130 when this process was interrupted, but 0 if all
// ranks ended with 0 then. A rank that only says that another has failed (5) is not called the first. No rank is left.
int launch(const LaunchOptions& options);

}  // namespace sinter::dist
