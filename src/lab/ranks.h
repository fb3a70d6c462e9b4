// The ranks that a command runs on. Inside a launched job (sinter launch, torchrun, mpirun, srun) they are the job's;
// a process started by hand is the rank that its flags say; otherwise the command launches its own. Every rank runs the
// same experiment: the same cases in the same order.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dist/world.h"
#include "lab/driver.h"
#include "lab/flags.h"

namespace sinter::lab {

struct RankOptions {
  std::vector<int64_t> ranks;                          // how many; several numbers are groups of the first ranks
  double timeout = 60;                                 // seconds that a collective waits for other ranks
  bool check_collectives = false;                      // every backend compares what ranks are about to do
  bool deterministic = false;                          // every backend adds in a fixed order
  bool mps = false;                                    // those we launch share a GPU at the same time
  std::map<std::string, std::string> started_by_hand;  // --rank, --world-size, …, by flag; empty where not given
};
// All but --deterministic, which other flags may bring. `alone`: how many ranks there are if nothing says so.
void add_rank_flags(Flags& flags, RankOptions& options, int alone = 2);
// Where --ranks was not given: all of the job, otherwise `alone`. Refuses what cannot be; by every process.
void fill_in(RankOptions& options, int alone = 2);

// Who this process is, if it is a rank of a job.
std::optional<dist::RankInfo> this_rank(const RankOptions& options);
// Rank 0, or the process that is about to launch the ranks: who checks what need not be checked twice.
bool is_first_rank(const RankOptions& options);

// Ranks that a launcher has started take the GPUs of their host in turn. Before a GPU is used.
void prefer_gpu_of_rank();

// A rank that no launcher of ours has told how many threads to use takes its share of the host's cores.
void divide_threads(const RankOptions& options);
// Says what is wrong and ends this process at once: other threads may still wait inside a collective.
[[noreturn]] void end_rank(const Error& e);

// Runs `work` as one of the ranks; a process that is none launches its own command line as so many as the largest
// number of them says. Returns the exit code.
int on_ranks(const RankOptions& options, const std::function<int(dist::World&)>& work);

// Runs the experiment in all ranks at once: rank 0 writes, and says when to stop. What a case decides (whether it fits,
// how often it runs, whether it goes on) must be the same in all of them.
int run(dist::World& world, Experiment& experiment, const OutputOptions& output);

// Whether it fits on the first `count` ranks, of which each says what it needs itself, or nothing. Ranks share their
// host's memory, need not need the same, and all decide alike.
plan::Fit fit_on(dist::World& world, int64_t count, DeviceType device, const std::optional<plan::Prediction>& need);

// Every rank's text, everywhere.
std::vector<std::string> from_all(dist::World& world, const std::string& mine);
// What the first rank that has something to say says, everywhere.
std::string first_of_all(dist::World& world, const std::string& mine);

}  // namespace sinter::lab
