// Memory that the ranks of one host share: what each says of itself, and a heap of each that all can read and write.
//
// Note [Shared memory]: the first rank of a host makes one memfd and passes it to the others over a Unix socket with a
// name that nobody can guess. It has no name in any file system, so that nothing is left behind whatever happens, and
// no container's limit on /dev/shm applies. It is as large as all heaps could ever be: memory is taken as pages are
// touched, and given back by punching holes.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/process_group.h"
#include "dist/store.h"

namespace sinter::dist {

// What a rank says of itself. Others read it at any time, also when the rank is dead or stopped.
struct alignas(128) RankStatus {
  enum State : uint32_t { outside, inside, finished };
  std::atomic<int32_t> pid;
  std::atomic<int32_t> blames;  // 1 + the rank whose end made this one fail; 0: none
  std::atomic<int64_t> step;    // from 1 on; 0: before the first
  std::atomic<int64_t> sequence;
  std::atomic<uint32_t> state;  // of its last collective
  Collective what;              // that one
};

class HostMemory {
 public:
  // By all ranks of the host, whose numbers in the world are given in ascending order.
  HostMemory(const std::vector<int>& ranks, int my_rank, Store& store, const std::string& key, double timeout_s);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const std::vector<int>& ranks() const { return ranks_; }
  RankStatus& mine() { return *status_of(rank_); }
  RankStatus* status_of(int world_rank) const;  // null: on another host
  bool has_ended(int world_rank) const;         // the process; false for other hosts' ranks
  std::vector<int> ended() const;

  // Of this rank's heap. allocate gives null when there is not enough.
  void* allocate(size_t bytes);
  void free(void* p);
  void* pool();  // of the CPU's allocator, over the heap
  // Where others find memory of this rank's heap; -1: it does not lie there.
  int64_t offset_of(const void* p, size_t bytes) const;
  void* at(int64_t offset) const;

  std::span<char> common_memory() const;  // what `common` takes from; whole pages
  // Zeroed memory for a group's own use. All ranks of the host ask for the same in the same order.
  void* common(size_t bytes);

 private:
  class Map;
  std::vector<int> ranks_;
  int rank_;
  std::shared_ptr<Map> map_;  // the CPU's allocator may hold on to it
  std::vector<int> pidfds_;
};

}  // namespace sinter::dist
