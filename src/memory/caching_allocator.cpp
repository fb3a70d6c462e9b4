#include "memory/caching_allocator.h"

#include <chrono>

#include "profile/range.h"

namespace sinter {
namespace {

// Requests are rounded to 512 bytes; those up to 1 MiB share 2 MiB segments, middling ones 20 MiB segments, large ones
// get a segment of their own rounded to 2 MiB. (The sizes PyTorch uses: its users' experience carries over.)
constexpr int64_t granule = 512, small_limit = 1 << 20, small_segment = 2 << 20;
constexpr int64_t medium_limit = 10 << 20, medium_segment = 20 << 20, large_granule = 2 << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

thread_local MemoryCategory category = MemoryCategory::activation;

}  // namespace

const char* name_of(MemoryCategory c) {
  static const char* const names[] = {"parameter",  "16-bit copy", "gradient",  "optimizer state",
                                      "activation", "temporary",   "workspace", "communication"};
  return names[int(c)];
}

CategoryScope::CategoryScope(MemoryCategory c) : previous_(std::exchange(category, c)) {}
CategoryScope::~CategoryScope() { category = previous_; }
MemoryCategory CategoryScope::current() { return category; }

CachingAllocator::CachingAllocator(std::string device_name, Source source)
    : device_name_(std::move(device_name)), source_(std::move(source)) {}

// Allocators live as long as the process: tensors with static lifetime may outlast main.
CachingAllocator::~CachingAllocator() = default;

int64_t CachingAllocator::rounded(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), granule); }

Allocator::Allocation CachingAllocator::allocate(int64_t bytes, void* stream) {
  int64_t size = rounded(bytes);
  bool small = size <= small_limit;
  std::lock_guard lock(mutex_);
  Block* block = find(size, stream, small);
  if (!block) block = grow(size, stream, small);
  if (!block) {
    release_cached_locked();
    block = grow(size, stream, small);
  }
  if (!block) out_of_memory(bytes);

  int64_t rest = block->bytes - size;
  if (small ? rest >= granule : rest > small_limit) split(block, size);
  block->used = true;
  block->category = CategoryScope::current();
  stats_.allocated += block->bytes;
  stats_.allocated_by[int(block->category)] += block->bytes;
  if (stats_.allocated > stats_.peak_allocated) {
    stats_.peak_allocated = stats_.allocated;
    std::copy_n(stats_.allocated_by, memory_category_count, stats_.at_peak_by);
  }
  log(MemoryEvent::alloc, *block);
  return {block->address, block};
}

void CachingAllocator::release(void* token) noexcept {
  std::lock_guard lock(mutex_);
  auto* block = static_cast<Block*>(token);
  block->used = false;
  stats_.allocated -= block->bytes;
  stats_.allocated_by[int(block->category)] -= block->bytes;
  log(MemoryEvent::free, *block);
  block = merge(block);
  pool_of(*block).insert(block);
}

CachingAllocator::Block* CachingAllocator::find(int64_t bytes, void* stream, bool small) {
  StreamPools& pools = pools_[stream];
  Pool& pool = small ? pools.small : pools.large;
  Block key{nullptr, bytes, nullptr, nullptr, stream, false, small};
  auto it = pool.lower_bound(&key);
  if (it == pool.end()) return nullptr;
  Block* block = *it;
  pool.erase(it);
  return block;
}

CachingAllocator::Block* CachingAllocator::grow(int64_t bytes, void* stream, bool small) {
  int64_t segment = small ? small_segment : bytes < medium_limit ? medium_segment : round_up(bytes, large_granule);
  void* p = source_.allocate(size_t(segment));
  if (!p && segment > bytes) p = source_.allocate(size_t(segment = bytes));
  if (!p) return nullptr;
  auto* block = new Block{static_cast<char*>(p), segment, nullptr, nullptr, stream, false, small};
  stats_.reserved += segment;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  log(MemoryEvent::segment_alloc, *block);
  return block;
}

void CachingAllocator::split(Block* block, int64_t bytes) {
  auto* rest =
      new Block{block->address + bytes, block->bytes - bytes, block, block->next, block->stream, false, block->small};
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  pool_of(*rest).insert(rest);
}

CachingAllocator::Block* CachingAllocator::merge(Block* block) {
  if (Block* next = block->next; next && !next->used) {
    pool_of(*next).erase(next);
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next) block->next->previous = block;
    delete next;
  }
  if (Block* before = block->previous; before && !before->used) {
    pool_of(*before).erase(before);
    before->bytes += block->bytes;
    before->next = block->next;
    if (before->next) before->next->previous = before;
    delete block;
    block = before;
  }
  return block;
}

void CachingAllocator::release_cached() {
  std::lock_guard lock(mutex_);
  release_cached_locked();
}

void CachingAllocator::release_cached_locked() {
  source_.synchronize();
  for (auto& [stream, pools] : pools_)
    for (Pool* pool : {&pools.small, &pools.large})
      for (auto it = pool->begin(); it != pool->end();) {
        Block* block = *it;
        if (block->previous || block->next) {
          ++it;
          continue;
        }
        log(MemoryEvent::segment_free, *block);
        stats_.reserved -= block->bytes;
        source_.free(block->address);
        it = pool->erase(it);
        delete block;
      }
}

MemoryStats CachingAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
  std::copy_n(stats_.allocated_by, memory_category_count, stats_.at_peak_by);
}

void CachingAllocator::record_events(bool on) {
  std::lock_guard lock(mutex_);
  recording_ = on;
}

std::vector<MemoryEvent> CachingAllocator::take_events() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void CachingAllocator::log(MemoryEvent::Action action, const Block& block) {
  if (!recording_) return;
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  events_.push_back({std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), action, block.category,
                     reinterpret_cast<uint64_t>(block.address), block.bytes, block.stream, Range::path()});
}

void CachingAllocator::out_of_memory(int64_t bytes) {
  constexpr double mib = 1 << 20;
  std::string holders;
  for (int c = 0; c < memory_category_count; ++c)
    if (stats_.allocated_by[c] > 0)
      holders += fmt::format("{}{} {:.0f} MiB", holders.empty() ? "" : ", ", name_of(MemoryCategory(c)),
                             double(stats_.allocated_by[c]) / mib);
  fail_with(ErrorKind::memory,
            "out of memory on {}: {:.0f} MiB more are needed, {:.0f} MiB are free; sinter holds {:.0f} MiB ({}). Use a "
            "smaller "
            "--batch, --ctx or --size, or --dtype bf16",
            device_name_, double(bytes) / mib, double(source_.free_bytes()) / mib, double(stats_.allocated) / mib,
            holders.empty() ? "nothing" : holders);
}

}  // namespace sinter
