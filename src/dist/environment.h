// Which rank this process is, as whoever launched it says.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sinter::dist {

struct RankInfo {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the processes of this host, as the launcher counts them
  std::string launcher;                // "flags", "torchrun's variables", "Open MPI", "PMI", "Slurm"
  std::string address = "127.0.0.1";   // where rank 0 is
  std::vector<int> ports;              // where its store may be, in the order to try
  std::string job;                     // names the job: two at the same time differ in it
  std::string secret;                  // SINTER_SECRET, or nothing
  std::string host;                    // SINTER_HOSTID, or what tells this host from others (host name and boot id)
};

// A variable's value, or nothing: ::getenv, but for tests and for commands that have flags. A flag is asked for like a
// variable, with its dashes: --rank, --world-size, --master-addr, --master-port.
using Variables = std::function<std::optional<std::string>(const char*)>;
Variables process_environment();

// The first complete set of variables wins: flags, torchrun's (RANK, WORLD_SIZE, …, which sinter launch sets too), Open
// MPI's, PMI's, Slurm's (inside a step only: a batch script has SLURM_PROCID as well). None: nothing, this process is
// alone. Refuses incomplete and impossible ones (ErrorKind::usage), naming variable, value and remedy.
std::optional<RankInfo> rank_from(const Variables& variables);

}  // namespace sinter::dist
