#include "lab/ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <unistd.h>

#include "backend/cpu/thread_pool.h"
#include "backend/cuda/cuda.h"
#include "backend/device.h"
#include "core/check.h"
#include "dist/launcher.h"
#include "system/host.h"
#include "system/json.h"
#include "system/process.h"
#include "system/signals.h"
#include "system/streams.h"

namespace sinter::lab {
namespace {

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string one; std::getline(file, one, '\0');) arguments.push_back(one);
  check(!arguments.empty(), "cannot read this process's own command line (/proc/self/cmdline), which its ranks need");
  return arguments;
}

int launch(int64_t ranks, bool mps) {
  dist::LaunchOptions o;
  o.ranks = int(ranks);
  o.mps = mps;
  o.command = own_arguments();
  o.command[0] = "sinter";
  o.program = own_executable();
  leave_gpu();
  o.interrupted_grace_s = 60;  // they end their step, and rank 0 writes what is finished
  return dist::launch(o);
}

}  // namespace

std::optional<dist::RankInfo> this_rank(const RankOptions& o) {
  return dist::rank_from([&](const char* name) {
    auto flag = o.started_by_hand.find(name);
    return flag == o.started_by_hand.end() ? dist::process_environment()(name) : flag->second;
  });
}

void add_rank_flags(Flags& flags, RankOptions& o, int alone) {
  const char* group = "Ranks";
  flags.add("--ranks", o.ranks, alone == 1 ? "N" : "N,..",
            fmt::format("how many processes (default {}; in a launched job all of its ranks)", alone), group);
  flags.add("--timeout", o.timeout, "SECONDS", "how long a collective waits for other ranks (default 60)", group);
  flags.add_switch("--check-collectives", o.check_collectives,
                   "compare what ranks are about to do before each collective (shm and ipc always do)", group);
  flags.add_switch("--mps", o.mps,
                   "ranks that share a GPU run on it at the same time (NVIDIA's MPS); a fault of one then ends all",
                   group);
  auto by_hand = [&](const char* flag, const char* type, const char* help) {
    flags.add(flag, o.started_by_hand[flag], type, help, "Ranks started by hand");
  };
  by_hand("--rank", "R", "which rank this process is, from 0 (with --world-size; wins over a launcher's variables)");
  by_hand("--world-size", "N", "how many ranks there are");
  by_hand("--master-addr", "ADDRESS", "where rank 0 is (default MASTER_ADDR, or 127.0.0.1)");
  by_hand("--master-port", "PORT", "a free port there, the same for all (default MASTER_PORT)");
}

void fill_in(RankOptions& o, int alone) {
  constexpr int64_t most = 1024;
  std::optional<dist::RankInfo> rank = this_rank(o);
  if (rank) prefer_gpu(rank->local_rank);
  if (o.ranks.empty()) o.ranks = {rank ? rank->size : alone};
  for (int64_t n : o.ranks) {
    check(n >= 1 && n <= most, "--ranks must be between 1 and {}, not {}", most, n);
    check(!rank || n <= rank->size, "--ranks {}: this job has {} ({}); launch more, or ask for fewer", n,
          rank ? rank->size : 0, rank ? rank->launcher : "");
  }
  check(o.timeout > 0 && o.timeout <= 1e6, "--timeout must be positive and at most a million seconds, not {}",
        o.timeout);
}

bool is_first_rank(const RankOptions& o) {
  std::optional<dist::RankInfo> rank = this_rank(o);
  return !rank || rank->rank == 0;
}

// Variables that make no sense are refused where ranks are asked for.
void prefer_gpu_of_rank() try {
  if (auto rank = dist::rank_from(dist::process_environment())) prefer_gpu(rank->local_rank);
} catch (const Error&) {
}

// One whose affinity leaves it some of the cores has its share already.
void divide_threads(const RankOptions& o) {
  std::optional<dist::RankInfo> rank = this_rank(o);
  cpu_set_t mine;
  bool bound = sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) < sysconf(_SC_NPROCESSORS_ONLN);
  if (!rank || bound || std::getenv("SINTER_THREADS")) return;
  cpu::set_threads(std::max(1, host_cores() / rank->local_size));
}

void end_rank(const Error& e) {
  std::string line = e.what();
  std::replace(line.begin(), line.end(), '\n', ' ');
  say(fmt::format("sinter: error: {}\n", line));
  std::fflush(nullptr);
  std::_Exit(int(e.kind()));
}

int on_ranks(const RankOptions& o, const std::function<int(dist::World&)>& work) {
  std::optional<dist::RankInfo> rank = this_rank(o);
  if (!rank) return launch(*std::max_element(o.ranks.begin(), o.ranks.end()), o.mps);
  dist::World world(*rank, {o.timeout, o.check_collectives, o.deterministic});
  try {
    int code = work(world);
    world.gather("");  // rank 0, where ranks meet, leaves last; nobody waits for what it writes
    return code;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::peer) throw;
    end_rank(e);
  }
}

int run(dist::World& world, Experiment& experiment, const OutputOptions& output) {
  experiment.writes = world.rank() == 0;
  experiment.stopped = [&world] { return world.share(interrupted() ? "stop" : "") == "stop"; };
  return run(experiment, output);
}

plan::Fit fit_on(dist::World& world, int64_t count, DeviceType device, const std::optional<plan::Prediction>& need) {
  plan::Fit mine{true, 0, "", ""};
  if (need) {
    int64_t here = 0;  // ranks that share this host's memory, or this GPU's
    bool gpu = device == DeviceType::cuda;
    for (int r = 0; r < int(count); ++r)
      here += gpu ? world.gpus()[size_t(r)] == world.gpus()[size_t(world.rank())]
                  : world.host_of(r) == world.host_of(world.rank());
    int64_t free = std::min(backend_of(device).free_bytes() / here, allocator_of(device).free_bytes());
    mine = plan::fit_of(*need, free);
  }
  mine.reason = first_of_all(world, mine.reason);
  mine.fits = mine.reason.empty();
  mine.warning = "";
  return mine;
}

std::vector<std::string> from_all(dist::World& world, const std::string& mine) {
  return Json::parse(world.share(Json(world.gather(mine)).dump()));
}

std::string first_of_all(dist::World& world, const std::string& mine) {
  for (const std::string& text : from_all(world, mine))
    if (!text.empty()) return text;
  return "";
}

}  // namespace sinter::lab
