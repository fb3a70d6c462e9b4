// All ranks of a job: who they are, and the groups they form.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/process_group.h"
#include "core/device.h"
#include "dist/environment.h"
#include "dist/store.h"

namespace sinter::cuda {
class RegisteredMemory;
}

namespace sinter::dist {

class HostMemory;
struct GroupSetting;

struct WorldOptions {
  double timeout_s = 60;           // that a collective waits for other ranks
  bool check_collectives = false;  // every backend compares what ranks are about to do; shm and ipc always do
  bool deterministic = false;      // gloo adds in a fixed order too
};

class World {
 public:
  // Meets the other ranks; all of them call it.
  World(const RankInfo& me, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return me_.rank; }
  int size() const { return me_.size; }
  const RankInfo& me() const { return me_; }
  int host_of(int rank) const { return hosts_[size_t(rank)]; }  // hosts are numbered in the order of their first rank
  int hosts() const;

  // A group of the ranks named, or of all if none is. All ranks of the world call it, in the same order; those that are
  // not named get nothing. `backend`: shm, gloo, ipc, nccl, hosts or auto. Deterministic if the world or the caller
  // asks for it. `device`: where the numbers lie; a group of GPUs takes the host's as well.
  std::unique_ptr<ProcessGroup> make_group(const std::string& backend, const std::vector<int>& ranks = {},
                                           bool deterministic = false, DeviceType device = DeviceType::cpu);
  struct Choice {
    std::string backend, why;
  };
  // Which it would be; refuses what cannot be.
  Choice choose(const std::string& backend, const std::vector<int>& ranks = {},
                DeviceType device = DeviceType::cpu) const;

  // By all ranks, once each has chosen its GPU: which it is, by rank.
  void exchange_gpus();
  const std::vector<std::string>& gpus() const { return gpus_; }  // UUIDs; empty before
  bool share_a_gpu(const std::vector<int>& ranks = {}) const;     // some of them do

  // For what is not worth a collective, through the store, by all ranks in the same order: every rank's text, at rank 0
  // (nothing elsewhere); rank 0's text, everywhere; and nothing at all, but everybody has come.
  std::vector<std::string> gather(const std::string& text);
  std::string share(const std::string& text);
  void barrier();

  void begin_step(int64_t step);  // from 1 on: for others to read when something goes wrong

 private:
  std::vector<int> or_all(std::vector<int> ranks) const;
  std::string next_key(const char* what);
  std::vector<int> ranks_of_host(int host) const;
  int ranks_a_host(const std::vector<int>& ranks) const;
  bool on_one_host(const std::vector<int>& ranks) const;
  std::unique_ptr<ProcessGroup> make_nccl(GroupSetting setting);

  RankInfo me_;
  WorldOptions options_;
  std::unique_ptr<Store> store_;
  std::vector<int> hosts_;  // by rank
  std::vector<std::string> gpus_;
  std::unique_ptr<HostMemory> host_;                    // what this host's ranks share
  std::unique_ptr<cuda::RegisteredMemory> registered_;  // the same, for flags that GPUs set
  int64_t exchanges_ = 0;
};

void check_backend(const std::string& name);  // refuses what this build does not have

}  // namespace sinter::dist
