#include "dist/world.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/ranges.h>
#include <map>
#include <numeric>
#include <sstream>

#include "backend/cuda/exchange.h"
#include "backend/device.h"
#include "core/check.h"
#include "dist/group.h"
#include "dist/host_memory.h"
#include "dist/mps.h"

namespace sinter::dist {

World::World(const RankInfo& me, const WorldOptions& options) : me_(me), options_(options) {
  prefer_gpu(me_.local_rank);
  store_ = Store::join(me_, options_.timeout_s);
  std::map<std::string, int> numbers;
  std::string all;
  for (const std::string& host : gather(me_.host))
    all += std::to_string(numbers.emplace(host, int(numbers.size())).first->second) + " ";
  std::istringstream hosts(share(all));
  for (int host; hosts >> host;) hosts_.push_back(host);
  int mine = host_of(rank());
  host_ = std::make_unique<HostMemory>(ranks_of_host(mine), rank(), *store_, fmt::format("host/{}", mine),
                                       options_.timeout_s);
}

World::~World() = default;

int World::hosts() const { return 1 + *std::max_element(hosts_.begin(), hosts_.end()); }

std::vector<int> World::ranks_of_host(int host) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r)
    if (host_of(r) == host) ranks.push_back(r);
  return ranks;
}

void check_backend(const std::string& name) {
  constexpr const char* known[] = {"auto", "shm", "gloo", "ipc", "nccl", "hosts"};
  check(std::find(std::begin(known), std::end(known), name) != std::end(known), "--backend {}: unknown; choose {}",
        name, fmt::join(known, ", "));
  check(name != "gloo" || has_gloo(),
        "--backend gloo: this build lacks gloo; install libgloo-dev and build again, or use --backend shm");
}

// As many on each, one host after the other; 0 where it is otherwise.
int World::ranks_a_host(const std::vector<int>& ranks) const {
  std::vector<std::pair<int, int>> runs;  // host, ranks of it that follow each other
  for (int r : ranks)
    if (runs.empty() || runs.back().first != host_of(r)) runs.emplace_back(host_of(r), 1);
    else ++runs.back().second;
  for (size_t i = 0; i < runs.size(); ++i) {
    bool again =
        std::any_of(runs.begin(), runs.begin() + int64_t(i), [&](auto& o) { return o.first == runs[i].first; });
    if (again || runs[i].second != runs[0].second) return 0;
  }
  return runs[0].second;
}

// No ranks given: all of them.
std::vector<int> World::or_all(std::vector<int> ranks) const {
  if (!ranks.empty()) return ranks;
  ranks.resize(size_t(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

bool World::on_one_host(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int r) { return host_of(r) == host_of(ranks[0]); });
}

void World::exchange_gpus() {
  check(cuda_backend() != nullptr, "ranks on GPUs: {}", cuda_missing_reason());
  std::istringstream all(share(fmt::format("{}", fmt::join(gather(cuda_backend()->info().uuid), " "))));
  gpus_.clear();
  for (std::string uuid; all >> uuid;) gpus_.push_back(uuid);
  std::span<char> common = host_->common_memory();
  registered_ = std::make_unique<cuda::RegisteredMemory>(common.data(), common.size());
}

bool World::share_a_gpu(const std::vector<int>& given) const {
  std::vector<int> ranks = or_all(given);
  for (size_t a = 0; a < ranks.size() && !gpus_.empty(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (gpus_[size_t(ranks[a])] == gpus_[size_t(ranks[b])]) return true;
  return false;
}

World::Choice World::choose(const std::string& backend, const std::vector<int>& given, DeviceType device) const {
  std::vector<int> ranks = or_all(given);
  bool one_host = on_one_host(ranks), gpu = device == DeviceType::cuda;
  int a_host = ranks_a_host(ranks);
  bool network = has_gloo() || (gpu && nccl_missing_reason().empty());
  if (backend == "auto") {
    if (ranks.size() == 1) return {"none", "a single rank"};
    if (one_host && gpu && ranks.size() > size_t(cuda::max_exchange_ranks))
      return {nccl_missing_reason().empty() ? "nccl" : "shm",
              fmt::format("ipc takes {} ranks at most", cuda::max_exchange_ranks)};
    if (one_host) return {gpu ? "ipc" : "shm", "all ranks are on one host"};
    check(network,
          "ranks on several hosts need gloo, which this build lacks{}; install libgloo-dev and build again, or start "
          "all ranks on one host",
          gpu ? ", or NCCL, which was not found" : "");
    bool nccl = gpu && nccl_missing_reason().empty();
    if (a_host > 1 && !(gpu && a_host > cuda::max_exchange_ranks))
      return {"hosts", fmt::format("{} ranks on each of {} hosts: {} inside a host, {} between them", a_host,
                                   ranks.size() / size_t(a_host), gpu ? "ipc" : "shm", nccl ? "nccl" : "gloo")};
    return {nccl ? "nccl" : "gloo", fmt::format("ranks are on {} hosts", hosts())};
  }
  check_backend(backend);
  check(gpu || (backend != "ipc" && backend != "nccl"),
        "--backend {}: for ranks on GPUs; add --device cuda, or use --backend {}", backend, one_host ? "shm" : "gloo");
  check((backend != "shm" && backend != "ipc") || one_host,
        "--backend {}: ranks are on {} hosts, and share no memory; use --backend {}", backend, hosts(),
        gpu ? "nccl" : "gloo");
  check(backend != "nccl" || nccl_missing_reason().empty(), "--backend nccl: {}", nccl_missing_reason());
  check(backend != "hosts" || a_host > 0,
        "--backend hosts: every host must have as many ranks, one host after the other; use --backend {}",
        gpu ? "nccl" : "gloo");
  check(backend != "hosts" || network,
        "--backend hosts: this build lacks gloo{}; install libgloo-dev and build again, or use --backend {}",
        gpu ? ", and NCCL was not found" : "", gpu ? "ipc" : "shm");
  return {backend, "asked for"};
}

// Ranks that share a GPU claim hosts of their own, or NCCL refuses them; it then takes the network between them.
std::unique_ptr<ProcessGroup> World::make_nccl(GroupSetting s) {
  if (share_a_gpu(s.ranks)) {
    s.captures = false;
    setenv("NCCL_HOSTID", fmt::format("{}-{}", me_.host, rank()).c_str(), 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MAX_CTAS", "2", 0);
    if (me_.address == "127.0.0.1") setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }
  std::unique_ptr<ProcessGroup> host;
  if (on_one_host(s.ranks)) host = make_shm_group(s);
  else if (has_gloo()) host = make_gloo_group(s);
  return make_nccl_group(std::move(s), std::move(host));
}

std::unique_ptr<ProcessGroup> World::make_group(const std::string& backend, const std::vector<int>& given,
                                                bool deterministic, DeviceType device) {
  std::vector<int> ranks = or_all(given);
  bool gpu = device == DeviceType::cuda;
  if (gpu && gpus_.empty()) exchange_gpus();
  Choice choice = choose(backend, ranks, device);
  GroupSetting s;
  s.key = next_key("group");
  // Also where it goes unused: all must ask for the same.
  s.shared = host_->common(shm_bytes(ranks.size()));
  if (gpu) s.exchanged = host_->common(ipc_bytes(ranks.size()));
  auto mine = std::find(ranks.begin(), ranks.end(), rank());
  if (mine == ranks.end()) return nullptr;
  s.rank = int(mine - ranks.begin());
  s.ranks = std::move(ranks);
  s.host = host_.get();
  s.store = store_.get();
  s.address = me_.address;
  s.timeout_s = options_.timeout_s;
  s.check_collectives = options_.check_collectives;
  s.deterministic = options_.deterministic || deterministic;
  s.takes_turns = gpu && share_a_gpu(s.ranks) && !mps_runs();
  auto staged = [&](std::unique_ptr<ProcessGroup> group) {
    return gpu ? make_staged_group(std::move(group)) : std::move(group);
  };
  if (choice.backend == "none") return make_single_group(device);
  if (choice.backend == "shm") return staged(make_shm_group(std::move(s)));
  if (choice.backend == "gloo") return staged(make_gloo_group(std::move(s)));
  if (choice.backend == "nccl") return make_nccl(std::move(s));
  if (choice.backend == "ipc") {
    auto host = make_shm_group(s);
    return make_ipc_group(std::move(s), std::move(host));
  }
  int a_host = ranks_a_host(s.ranks), host = s.rank / a_host, place = s.rank % a_host;
  GroupSetting inside = s, between = s;
  inside.ranks.assign(s.ranks.begin() + host * a_host, s.ranks.begin() + (host + 1) * a_host);
  inside.rank = place;
  between.ranks.clear();
  for (size_t r = size_t(place); r < s.ranks.size(); r += size_t(a_host)) between.ranks.push_back(s.ranks[r]);
  between.rank = host;
  between.key += fmt::format("/place/{}", place);
  std::unique_ptr<ProcessGroup> within = make_shm_group(inside);
  if (gpu) within = make_ipc_group(inside, std::move(within));
  bool nccl = gpu && nccl_missing_reason().empty();
  return make_hosts_group(std::move(within),
                          nccl ? make_nccl(std::move(between)) : staged(make_gloo_group(std::move(between))), device);
}

std::string World::next_key(const char* what) { return fmt::format("{}/{}", what, ++exchanges_); }

std::vector<std::string> World::gather(const std::string& text) {
  std::string key = next_key("gather");
  if (rank() > 0) {
    store_->set(fmt::format("{}/{}", key, rank()), text);
    return {};
  }
  std::vector<std::string> all = {text};
  for (int r = 1; r < size(); ++r) all.push_back(store_->get(fmt::format("{}/{}", key, r), options_.timeout_s));
  return all;
}

std::string World::share(const std::string& text) {
  std::string key = next_key("share");
  // Rank 0 may be at work with some of the ranks for long. If it ends, the store says so at once; if it is stopped, the
  // store does not answer.
  while (rank() > 0)
    if (auto theirs = store_->try_get(key, options_.timeout_s)) return *theirs;
  store_->set(key, text);
  return text;
}

void World::barrier() {
  gather("");
  share("");
}

void World::begin_step(int64_t step) { host_->mine().step.store(step); }

}  // namespace sinter::dist
