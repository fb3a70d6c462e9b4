// A caching allocator: memory taken from the device is kept and handed out again, because cudaMalloc and cudaFree stop
// the device. One instance per device; the meta device runs the same code over fake addresses, so what it predicts is
// what happens.
//
// Note [Stream-ordered reuse]: each stream has its own pool. A block freed by the host may still be read by kernels
// already queued on its stream; whoever gets it next queues behind them on the same stream, so no event is needed.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"

namespace sinter {

enum class MemoryCategory : uint8_t {
  parameter,
  low_copy,
  gradient,
  optimizer,
  activation,
  temporary,
  workspace,
  communication
};
constexpr int memory_category_count = 8;
const char* name_of(MemoryCategory c);

// The category of what this thread allocates next.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory c);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;
  static MemoryCategory current();

 private:
  MemoryCategory previous_;
};

struct MemoryEvent {
  enum Action : uint8_t { segment_alloc, segment_free, alloc, free, out_of_memory };
  int64_t time_ns;  // steady clock of the host
  Action action;
  MemoryCategory category;
  uint64_t address;   // out_of_memory: what the device has free
  int64_t bytes;      // of the block; out_of_memory: what was asked for
  int64_t requested;  // by the caller, before rounding
  void* stream;
  uint32_t range;    // where it happened
  TensorRef tensor;  // what it holds (data is null); rank -1: not a tensor
};

// A block as it is now; segments and blocks by address.
struct BlockState {
  uint64_t address;
  int64_t bytes, requested;
  bool used;
  MemoryCategory category;
  uint32_t range;  // where it was allocated
  TensorRef tensor;
};
struct SegmentState {
  uint64_t address;
  int64_t bytes;
  void* stream;
  bool small;
  std::vector<BlockState> blocks;  // tile it exactly
};

struct MemoryStats {
  int64_t allocated = 0, peak_allocated = 0;  // handed out (rounded to blocks)
  int64_t reserved = 0, peak_reserved = 0;    // taken from the device
  int64_t allocated_by[memory_category_count] = {};
  int64_t at_peak_by[memory_category_count] = {};
};

class CachingAllocator : public Allocator {
 public:
  struct Source {                           // raw memory
    std::function<void*(size_t)> allocate;  // null when there is not enough
    std::function<void(void*)> free;
    std::function<int64_t()> free_bytes;
    std::function<void()> synchronize;  // before memory goes back to the device
    std::function<void(void*, size_t, void* stream)> fill_with_nan;
  };
  CachingAllocator(std::string device_name, Source source);
  // Memory of another kind, such as what other processes can see: allocations whose stream is `key` come from it.
  void add_pool(void* key, Source source);
  ~CachingAllocator() override;

  Allocation allocate(int64_t bytes, void* stream, const TensorRef* holds = nullptr) override;
  void release(void* token) noexcept override;
  void release_cached();  // gives unused segments back to the device

  // No more than this is handed out. Cached segments do not count, so that a limit of the predicted peak is enough.
  static constexpr int64_t no_limit = INT64_MAX;
  void set_limit(int64_t bytes);
  int64_t free_bytes() const;  // of the device, now; cached segments do not count

  MemoryStats stats() const;
  void reset_peak();
  void record_events(bool on);
  std::vector<MemoryEvent> take_events();

  std::vector<SegmentState> segments() const;
  std::vector<std::string> faults() const;  // double frees so far: who allocated, who freed
  // Every block is handed out full of NaNs, so that a kernel that reads what nobody wrote is found out.
  void poison(bool on);

  static int64_t rounded(int64_t bytes);  // the size of the block that serves a request

 private:
  struct Block {
    char* address;
    int64_t bytes;
    Block *previous = nullptr, *next = nullptr;  // neighbours in the same segment
    void* stream;
    bool used = false, small;
    MemoryCategory category = MemoryCategory::activation;
    uint32_t allocated_in = 0, freed_in = 0;
    int64_t requested = 0;
    TensorRef tensor = {};
    int64_t segment = 0;  // its number, in the order in which they were taken
  };
  // The smallest first. Among equals the order must not depend on the addresses that the device happens to give: a
  // prediction makes the same choices.
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return std::tie(a->bytes, a->segment, a->address) < std::tie(b->bytes, b->segment, b->address);
    }
  };
  using Pool = std::set<Block*, BySize>;
  struct StreamPools {
    Pool small, large;
  };

  Block* find(int64_t bytes, void* stream, bool small);
  Block* grow(int64_t bytes, void* stream, bool small);
  void split(Block* block, int64_t bytes);
  Block* merge(Block* block);
  void release_cached_locked();
  int64_t free_bytes_locked() const { return std::min(source_.free_bytes(), limit_ - stats_.allocated); }
  Block* new_block(const Block& b);
  void discard(Block* block);
  void log(MemoryEvent::Action action, const Block& block);
  void report_double_free(const Block& block) noexcept;
  std::string holders_by_category() const;
  std::string largest_holders() const;
  [[noreturn]] void out_of_memory(int64_t bytes);
  Pool& pool_of(const Block& b) { return b.small ? pools_[b.stream].small : pools_[b.stream].large; }

  std::string device_name_;
  Source source_;
  std::unordered_map<void*, Source> pool_sources_;  // of pools that have their own
  Source& source_of(void* stream);
  mutable std::mutex mutex_;
  std::unordered_map<void*, StreamPools> pools_;
  std::map<char*, Block*> segments_;  // the first block of each
  // Blocks live as long as the allocator: a token given back twice must still be recognised. Those out of use wait,
  // oldest first, to be used again.
  std::deque<Block> blocks_;
  std::deque<Block*> spare_;
  MemoryStats stats_;
  int64_t limit_ = no_limit;
  bool recording_ = false, poison_ = false;
  int64_t segments_taken_ = 0, last_event_ns_ = 0;
  std::vector<MemoryEvent> events_;
  std::vector<std::string> faults_;
};

}  // namespace sinter
