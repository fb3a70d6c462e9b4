#include "dist/world.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "core/check.h"
#include "dist/group.h"
#include "dist/host_memory.h"

namespace sinter::dist {

World::World(const RankInfo& me, const WorldOptions& options) : me_(me), options_(options) {
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
  check(name == "auto" || name == "shm" || name == "gloo" || name == "hosts",
        "--backend {}: unknown; choose auto, shm, gloo or hosts", name);
  check((name != "gloo" && name != "hosts") || has_gloo(),
        "--backend {}: this build lacks gloo; install libgloo-dev and build again, or use --backend shm", name);
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

World::Choice World::choose(const std::string& backend, const std::vector<int>& given) const {
  std::vector<int> ranks = or_all(given);
  bool one_host = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return host_of(r) == host_of(ranks[0]); });
  int a_host = ranks_a_host(ranks);
  if (backend == "auto") {
    if (ranks.size() == 1) return {"none", "a single rank"};
    if (one_host) return {"shm", "all ranks are on one host"};
    check(has_gloo(),
          "ranks on several hosts need gloo, which this build lacks; install libgloo-dev and build again, or start "
          "all ranks on one host");
    if (a_host > 1)
      return {"hosts", fmt::format("{} ranks on each of {} hosts: shm inside a host, gloo between them", a_host,
                                   ranks.size() / size_t(a_host))};
    return {"gloo", fmt::format("ranks are on {} hosts", hosts())};
  }
  check_backend(backend);
  check(backend != "shm" || one_host, "--backend shm: ranks are on {} hosts, and share no memory; use --backend gloo",
        hosts());
  check(backend != "hosts" || a_host > 0,
        "--backend hosts: every host must have as many ranks, one host after the other; use --backend gloo");
  return {backend, "asked for"};
}

std::unique_ptr<ProcessGroup> World::make_group(const std::string& backend, const std::vector<int>& given,
                                                bool deterministic) {
  std::vector<int> ranks = or_all(given);
  Choice choice = choose(backend, ranks);
  GroupSetting s;
  s.key = next_key("group");
  s.shared = host_->common(shm_bytes(ranks.size()));  // also where it goes unused: all must ask for the same
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
  if (choice.backend == "none") return make_single_group();
  if (choice.backend == "hosts") {
    int a_host = ranks_a_host(s.ranks), host = s.rank / a_host, place = s.rank % a_host;
    GroupSetting inside = s, between = s;
    inside.ranks.assign(s.ranks.begin() + host * a_host, s.ranks.begin() + (host + 1) * a_host);
    inside.rank = place;
    between.ranks.clear();
    for (size_t r = size_t(place); r < s.ranks.size(); r += size_t(a_host)) between.ranks.push_back(s.ranks[r]);
    between.rank = host;
    between.key += fmt::format("/place/{}", place);
    return make_hosts_group(make_shm_group(std::move(inside)), make_gloo_group(std::move(between)));
  }
  return choice.backend == "shm" ? make_shm_group(std::move(s)) : make_gloo_group(std::move(s));
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
