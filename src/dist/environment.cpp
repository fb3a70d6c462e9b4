#include "dist/environment.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <unistd.h>

#include "core/check.h"

namespace sinter::dist {
namespace {

constexpr int ports_to_try = 16;

// The variables of one launcher. Those of a host may be missing. Flags have names that no variable has.
struct Names {
  const char *launcher, *rank, *size, *local_rank, *local_size;
  const char *address = "MASTER_ADDR", *port = "MASTER_PORT";
};
constexpr Names flags{"flags", "--rank", "--world-size", nullptr, nullptr, "--master-addr", "--master-port"};
constexpr Names torchrun{"torchrun's variables", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names pmi{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names slurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};

std::optional<int> whole_number(std::string_view text) {
  int n = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return n;
}

class Environment {
 public:
  explicit Environment(const Variables& variables) : variables_(variables) {}

  // An empty variable counts as none: that is how scripts unset them.
  std::string text(const char* name) const { return name ? variables_(name).value_or("") : ""; }
  bool has(const char* name) const { return !text(name).empty(); }
  std::string first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return text(name);
    return "";
  }

  std::optional<int> number(const char* name, int low, int high = std::numeric_limits<int>::max()) const {
    if (!has(name)) return {};
    std::optional<int> n = whole_number(text(name));
    bool any = high == std::numeric_limits<int>::max();
    check(n && *n >= low && *n <= high, "{}={}: must be a whole number {}; correct it, or leave it out", name,
          text(name), any ? fmt::format("from {} up", low) : fmt::format("between {} and {}", low, high));
    return n;
  }

  // A batch script and an interactive shell have SLURM_PROCID as well; their step is missing, a word, or beyond 2³¹.
  bool in_slurm_step() const { return whole_number(text("SLURM_STEP_ID")).value_or(-1) >= 0; }

 private:
  const Variables& variables_;
};

// Of this host, from "2(x3),1": three hosts with 2 tasks, then one with 1.
std::optional<int> slurm_local_size(const Environment& e) {
  const char* name = e.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  std::string list = e.text(name);
  std::optional<int> node = e.number("SLURM_NODEID", 0);
  if (list.empty() || !node) return {};
  int before = 0;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = list.substr(begin, end - begin);
    size_t times = entry.find("(x");
    bool repeated = times != std::string::npos && entry.back() == ')';
    std::optional<int> tasks = whole_number(entry.substr(0, times)),
                       hosts = repeated ? whole_number(entry.substr(times + 2, entry.size() - times - 3)) : 1;
    check(tasks && hosts && *tasks > 0 && *hosts > 0 && (repeated || times == std::string::npos),
          "{}={}: must be a list such as 2(x3),1; correct it, or unset it", name, list);
    if (*node - before < *hosts) return tasks;
    before += *hosts;
    begin = end + 1;
  }
  fail_with(ErrorKind::usage, "{}={} lists {} hosts, but SLURM_NODEID={}; correct one, or unset it", name, list, before,
            *node);
}

// What the launcher calls the job; empty where it does not.
std::string name_of_job(const Environment& e, const Names& names, bool one_host) {
  std::string step = e.first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!step.empty()) step += "." + e.text("SLURM_STEP_ID");
  if (&names == &flags) return "";
  if (&names == &torchrun) return e.text("TORCHELASTIC_RUN_ID");
  if (&names == &open_mpi) return e.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (&names == &slurm) return step;
  std::string name = e.first_of({"PMI_JOBID", "PMI_PORT"});
  if (name.empty() && e.in_slurm_step()) name = step;
  // MPICH names nothing, but all ranks of a host have one parent.
  if (name.empty() && one_host) name = fmt::format("parent {}", getppid());
  return name;
}

std::vector<int> ports_from(const Environment& e, const Names& names, const char* port_name, const std::string& job) {
  std::vector<int> ports;
  std::optional<int> master = e.number(port_name, 1, 65535);
  if (master && !(&names == &torchrun && e.text("TORCHELASTIC_USE_AGENT_STORE") == "True")) return {*master};
  for (int i = 0; i < ports_to_try; ++i) {
    if (master) {  // torchrun itself listens there: those that follow, without the privileged ones
      int port = std::max(*master, 1023) + 1 + i;
      ports.push_back(port <= 65535 ? port : port - 65536 + 1024);
    } else {  // below those that Linux gives to clients (32768 and up)
      constexpr uint64_t low = 20000, count = 11000;
      uint64_t hash = 14695981039346656037u;  // FNV-1a: the same in every build, which std::hash is not
      for (unsigned char c : job) hash = (hash ^ c) * 1099511628211u;
      ports.push_back(int(low + (hash + uint64_t(i)) % count));
    }
  }
  return ports;
}

std::string name_of_host(const Environment& e) {
  if (e.has("SINTER_HOSTID")) return e.text("SINTER_HOSTID");
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return std::string(name) + " " + boot;
}

bool is_host_name(const std::string& address) {
  in6_addr any;
  return inet_pton(AF_INET, address.c_str(), &any) != 1 && inet_pton(AF_INET6, address.c_str(), &any) != 1;
}

RankInfo rank_of(const Environment& e, const Names& names) {
  RankInfo me;
  me.launcher = names.launcher;
  me.size = *e.number(names.size, 1);
  me.rank = *e.number(names.rank, 0);
  check(me.rank < me.size, "{}={}, but {}={}: ranks are counted from 0; correct one of them", names.rank, me.rank,
        names.size, me.size);

  std::optional<int> local_rank = e.number(names.local_rank, 0), local_size = e.number(names.local_size, 1);
  bool of_slurm = (&names == &pmi || &names == &slurm) && e.in_slurm_step();
  if (of_slurm && !local_rank) local_rank = e.number("SLURM_LOCALID", 0);
  if (of_slurm && !local_size) local_size = slurm_local_size(e);
  bool one_host = local_size == me.size;
  me.local_size = local_size.value_or(me.size);
  me.local_rank = local_rank.value_or(me.rank % me.local_size);
  check(me.local_size <= me.size, "{} ranks on this host ({}), but {}={} in all; correct one of them", me.local_size,
        names.local_size ? names.local_size : "SLURM_TASKS_PER_NODE", names.size, me.size);
  check(me.local_rank < me.local_size,
        "{}={}, but there are {} ranks on this host ({}): they are counted from 0; correct one of them",
        names.local_rank, me.local_rank, me.local_size, names.local_size ? names.local_size : "SLURM_TASKS_PER_NODE");

  // A flag may be left to its variable.
  const char* address = e.has(names.address) || !e.has("MASTER_ADDR") ? names.address : "MASTER_ADDR";
  const char* port = e.has(names.port) || !e.has("MASTER_PORT") ? names.port : "MASTER_PORT";
  bool hosts = me.local_size < me.size || (of_slurm && e.number("SLURM_NNODES", 1).value_or(1) > 1 && !one_host);
  check(!hosts || e.has(address),
        "{} ranks on several hosts ({}) need to know where rank 0 is; set MASTER_ADDR to its host, the same for all",
        me.size, names.launcher);
  if (e.has(address)) me.address = e.text(address);
  // Ranks of one host need no address that others can reach, and torchrun gives them the host's name.
  if (one_host && is_host_name(me.address)) me.address = "127.0.0.1";

  std::string name = name_of_job(e, names, !hosts);
  check(me.size == 1 || !name.empty() || e.has(port),
        "{} ranks ({}), but neither a port to meet at nor the job's name; set {} to a free port, the same for all, or "
        "start them with sinter launch",
        me.size, names.launcher, port);
  me.job = fmt::format("{}/{}/{}/{}", getuid(), names.launcher, name, e.text(port));
  me.ports = ports_from(e, names, port, me.job);
  me.secret = e.text("SINTER_SECRET");
  me.host = name_of_host(e);
  return me;
}

}  // namespace

Variables process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::optional<RankInfo> rank_from(const Variables& variables) {
  Environment e(variables);
  if (!e.first_of({flags.rank, flags.size, flags.address, flags.port}).empty()) {
    for (const char* needed : {flags.rank, flags.size})
      check(e.has(needed),
            "{} is missing; a rank that is started by hand needs --rank and --world-size: give both, or none of "
            "--rank, --world-size, --master-addr and --master-port",
            needed);
    return rank_of(e, flags);
  }
  std::vector<const Names*> sets = {&torchrun, &open_mpi, &pmi};
  if (e.in_slurm_step()) sets.push_back(&slurm);
  for (const Names* names : sets)
    if (e.has(names->rank) && e.has(names->size)) return rank_of(e, *names);
  for (const Names* names : sets) {
    bool rank = e.has(names->rank), size = e.has(names->size);
    check(!rank && !size, "{}={}, but {} is not set; set both, or neither", rank ? names->rank : names->size,
          e.text(rank ? names->rank : names->size), rank ? names->size : names->rank);
  }
  return {};
}

}  // namespace sinter::dist
