// A caching allocator: memory taken from the device is kept and handed out again, because cudaMalloc and cudaFree stop
// the device. One instance per device; the meta device runs the same code over fake addresses, so what it predicts is
// what happens.
//
// Note [Stream-ordered reuse]: each stream has its own pool. A block freed by the host may still be read by kernels
// already queued on its stream; whoever gets it next queues behind them on the same stream, so no event is needed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
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
  enum Action : uint8_t { segment_alloc, segment_free, alloc, free };
  int64_t time_ns;
  Action action;
  MemoryCategory category;
  uint64_t address;
  int64_t bytes;
  void* stream;
  std::string range;
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
  };
  CachingAllocator(std::string device_name, Source source);
  ~CachingAllocator() override;

  Allocation allocate(int64_t bytes, void* stream) override;
  void release(void* token) noexcept override;
  void release_cached();  // gives unused segments back to the device

  MemoryStats stats() const;
  void reset_peak();
  void record_events(bool on);
  std::vector<MemoryEvent> take_events();

  static int64_t rounded(int64_t bytes);  // the size of the block that serves a request

 private:
  struct Block {
    char* address;
    int64_t bytes;
    Block *previous = nullptr, *next = nullptr;  // neighbours in the same segment
    void* stream;
    bool used = false, small;
    MemoryCategory category = MemoryCategory::activation;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
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
  void log(MemoryEvent::Action action, const Block& block);
  [[noreturn]] void out_of_memory(int64_t bytes);
  Pool& pool_of(const Block& b) { return b.small ? pools_[b.stream].small : pools_[b.stream].large; }

  std::string device_name_;
  Source source_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, StreamPools> pools_;
  MemoryStats stats_;
  bool recording_ = false;
  std::vector<MemoryEvent> events_;
};

}  // namespace sinter
