// Collectives of ranks that see each other's GPU memory (CUDA IPC), as one of them queues its part. No CUDA header
// here; no_cuda.cpp answers in builds without it.
//
// Note [Flags]: ranks wait for each other on the device, by stream memory operations on flags, and never by a kernel
// that spins: ranks that share a GPU take turns on it, and one that spins keeps from its turn the one it waits for. A
// collective is
//   set flag 0 of every other rank: "my numbers are there"
//   wait for the others' flags 0, and reset them
//   one kernel, which reads and writes everybody's memory
//   the same with flags 1: "I have done my part"
// Flags are reset by whoever waited, because what a captured graph writes is the same at every replay; there are two
// sets of them, so that a rank that comes to the next collective cannot meet a flag that is yet to be reset. They lie
// in the host's memory: a thread can let go whoever waits, whatever the device is busy with.
//
// Note [Taking turns]: processes that share a GPU, not under MPS, take turns on it of about two milliseconds. One whose
// streams all wait gives up its turn at once if they wait by memory operations. If one of them waits for an event,
// which is how streams and branches of a graph usually wait for each other, the GPU idles until the turn is over: twice
// for each collective. So where ranks take turns, main and communication wait for each other's counts instead, which
// are words in the device's memory, and a compiled step has no further lanes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/process_group.h"

namespace sinter::cuda {

constexpr int max_exchange_ranks = 16;

struct IpcHandle {
  unsigned char bytes[64];
};

// The host's memory, made visible to the GPU for as long as this lives.
class RegisteredMemory {
 public:
  RegisteredMemory(void* p, size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

 private:
  void* p_;
};

// How far the collectives that a process has queued have come. The device writes it to the host's memory, where anybody
// can look at any time.
class DeviceProgress {
 public:
  DeviceProgress();
  ~DeviceProgress();
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;

  void begin(uint32_t id, void* stream);  // of what follows; not 0
  void end(void* stream);
  struct Seen {
    uint32_t current = 0;   // the id of the one that the device is in, or 0
    uint64_t finished = 0;  // how many came before it
    bool operator==(const Seen&) const = default;
  };
  Seen seen() const;

 private:
  friend class Exchange;
  struct Words;
  Words* words_;
};

// What cudaMalloc gave: a pointer into it is the base and an offset, which is what other processes can know.
char* allocation_base(const void* p);
IpcHandle handle_of(void* base);
char* open(const IpcHandle& handle);
void close(char* base);
bool is_capturing(void* stream);
void set_count(uint32_t* count, uint32_t value, void* stream);
void wait_for_count(void* stream, uint32_t* count, uint32_t at_least);

// `listener` hears of memory that is about to be freed; it is freed once nobody holds it. One listener for each owner;
// an empty one takes it away.
using Memory = std::shared_ptr<void>;
void listen_to_frees(const void* owner, std::function<void(const Memory&)> listener);

class Exchange {
 public:
  // A rank's flags: in memory that all ranks of the host and their GPUs see; zero at first.
  struct Flags {
    uint32_t set[2][max_exchange_ranks];  // by who has set them
  };
  Exchange(int rank, int ranks, Flags* const* flags);
  // `at`: where each rank's numbers lie that others read, and of an all_reduce write. What lies there may be null for
  // those whose numbers nobody needs.
  void run(const Collective& what, uint32_t id, char* const* at, void* out, void* stream);
  DeviceProgress::Seen seen() const { return progress_.seen(); }
  void release();  // whoever waits here goes on; once

 private:
  int rank_, ranks_;
  DeviceProgress progress_;
  Flags* flags_[max_exchange_ranks] = {};  // of every rank
};

}  // namespace sinter::cuda
