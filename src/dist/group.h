// What every group does around a collective: it numbers it, says what it is about to do where other ranks can read it,
// and makes an error of what went wrong that names rank, step and collective.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/process_group.h"
#include "core/device.h"
#include "dist/host_memory.h"
#include "dist/store.h"

namespace sinter::dist {

struct GroupSetting {
  std::vector<int> ranks;      // of the world, in the group's order
  int rank = 0;                // this one's place among them
  HostMemory* host = nullptr;  // null: ranks know nothing of each other but what they send
  void* shared = nullptr;      // what shm_bytes() asks for, zero at first, the same for all ranks of a host
  void* exchanged = nullptr;   // what ipc_bytes() asks for, likewise, where ranks are on GPUs
  Store* store = nullptr;
  std::string key;  // of what the group keeps in the store
  std::string address = "127.0.0.1";
  double timeout_s = 60;
  bool check_collectives = false, deterministic = false;
  bool captures = true;      // nccl: inside graphs
  bool takes_turns = false;  // ranks share a GPU, and not under MPS
};

class Group : public ProcessGroup {
 public:
  explicit Group(GroupSetting setting) : setting_(std::move(setting)) {}
  int rank() const final { return setting_.rank; }
  int size() const final { return int(setting_.ranks.size()); }
  void run(const Collective& what, const void* in, void* out, void* stream) final;

 protected:
  virtual void do_run(const Collective& what, const void* in, void* out, void* stream) = 0;
  // Whether a collective is only queued by do_run(): it is begun when somebody calls come_to().
  virtual bool is_queued() const { return false; }
  void come_to(const Collective& what, int64_t sequence, bool inside);
  // Compares with the other ranks before it is run, where do_run does not; throws what mismatch() says.
  virtual void compare(const Collective&) {}
  const GroupSetting& setting() const { return setting_; }
  int64_t sequence() const { return sequence_; }  // of the one that runs, from 1
  // Errors for do_run and compare to throw.
  [[noreturn]] void time_out();                                        // others did not come
  [[noreturn]] void died(int world_rank);                              // one has ended
  [[noreturn]] void mismatch(const std::vector<Collective>& by_rank);  // ranks do different things
  std::vector<int> ended() const;  // ranks of this group and host that have, by their numbers in the world

 private:
  RankStatus* status(int world_rank) const { return setting_.host ? setting_.host->status_of(world_rank) : nullptr; }
  std::string now() const;    // "rank 2, step 7, all_reduce number 12 of 4096 f32"
  std::string table() const;  // every rank's last collective

  GroupSetting setting_;
  mutable std::mutex mutex_;  // of what follows: a GPU's ranks have a thread that watches
  int64_t sequence_ = 0;
  Collective current_;
};

std::string text_of(const Collective& what);  // "all_reduce of 4096 f32 (average)"

std::unique_ptr<ProcessGroup> make_shm_group(GroupSetting setting);
size_t shm_bytes(size_t ranks);
std::unique_ptr<ProcessGroup> make_gloo_group(GroupSetting setting);  // refuses where the build has no gloo
bool has_gloo();
// Of all ranks of several hosts: this host's, and those at the same place on each (hosts_group.cpp).
std::unique_ptr<ProcessGroup> make_hosts_group(std::unique_ptr<ProcessGroup> inside,
                                               std::unique_ptr<ProcessGroup> between, DeviceType device);
std::unique_ptr<ProcessGroup> make_single_group(DeviceType device);  // of one rank: copies where it must
// Of ranks on GPUs; `host` is a group of the same ranks, for what lies in the host's memory; nccl can do without.
std::unique_ptr<ProcessGroup> make_ipc_group(GroupSetting setting, std::unique_ptr<ProcessGroup> host);
size_t ipc_bytes(size_t ranks);
std::unique_ptr<ProcessGroup> make_nccl_group(GroupSetting setting, std::unique_ptr<ProcessGroup> host);
std::string nccl_missing_reason();  // empty where it can be loaded
// Through the host's memory: its collectives wait for the device, and cannot be captured.
std::unique_ptr<ProcessGroup> make_staged_group(std::unique_ptr<ProcessGroup> host);
// Rank 0 of so many that are not there: for what is traced or predicted, and never run.
std::unique_ptr<ProcessGroup> make_imagined_group(int ranks);

// out = (in[0] + in[1] + …) · factor, in that order, 16-bit numbers in fp32. Several outs get the same, also those that
// are ins.
void add_in_order(DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out, int64_t elements,
                  double factor);

// out = a + b, in one pass: gloo's ring adds two at a time, and most are fp32. `out` may be `a`.
void add_two(float* out, const float* a, const float* b, size_t n);

}  // namespace sinter::dist
