#include "memory/caching_allocator.h"

#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "core/range.h"

namespace sinter {
namespace {

// Requests are rounded to 512 bytes; those up to 1 MiB share 2 MiB segments, middling ones 20 MiB segments, large ones
// get a segment of their own rounded to 2 MiB. (The sizes PyTorch uses: its users' experience carries over.)
constexpr int64_t granule = 512, small_limit = 1 << 20, small_segment = 2 << 20;
constexpr int64_t medium_limit = 10 << 20, medium_segment = 20 << 20, large_granule = 2 << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

constexpr TensorRef no_tensor{nullptr, DType::f32, -1, {}, {}};
constexpr size_t spare_limit = 4096;  // blocks out of use that are remembered

thread_local MemoryCategory category = MemoryCategory::activation;

std::string mib(int64_t bytes) { return fmt::format("{:.4g} MiB", double(bytes) / (1 << 20)); }

// The place without its op: allocations of one module are told together.
std::string module_of(uint32_t range) {
  const RangeNode* n = &range_of(range);
  while (n->kind == RangeKind::op) n = n->parent;
  std::string path = n->path();
  return path.empty() ? "outside any range" : path;
}
std::string place(uint32_t range) {
  std::string path = range_of(range).path();
  return path.empty() ? "outside any range" : path;
}

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

CachingAllocator::Source& CachingAllocator::source_of(void* stream) {
  auto it = pool_sources_.find(stream);
  return it == pool_sources_.end() ? source_ : it->second;
}

void CachingAllocator::add_pool(void* key, Source source) {
  std::lock_guard lock(mutex_);
  pool_sources_.insert_or_assign(key, std::move(source));
}

int64_t CachingAllocator::rounded(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), granule); }

Allocator::Allocation CachingAllocator::allocate(int64_t bytes, void* stream, const TensorRef* holds) {
  int64_t size = rounded(bytes);
  bool small = size <= small_limit;
  std::lock_guard lock(mutex_);
  if (size > limit_ - stats_.allocated) out_of_memory(bytes);
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
  block->requested = bytes;
  block->allocated_in = Range::current().id;
  block->tensor = holds ? *holds : no_tensor;
  stats_.allocated += block->bytes;
  stats_.allocated_by[int(block->category)] += block->bytes;
  if (stats_.allocated > stats_.peak_allocated) {
    stats_.peak_allocated = stats_.allocated;
    std::copy_n(stats_.allocated_by, memory_category_count, stats_.at_peak_by);
  }
  log(MemoryEvent::alloc, *block);
  if (poison_)
    source_.fill_with_nan(block->address, size_t(block->bytes), pool_sources_.contains(stream) ? nullptr : stream);
  return {block->address, block};
}

void CachingAllocator::release(void* token) noexcept {
  std::lock_guard lock(mutex_);
  auto* block = static_cast<Block*>(token);
  if (!block->used) return report_double_free(*block);
  block->used = false;
  block->freed_in = Range::current().id;
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
  Source& source = source_of(stream);
  void* p = source.allocate(size_t(segment));
  if (!p && segment > bytes) p = source.allocate(size_t(segment = bytes));
  if (!p) return nullptr;
  Block* block = new_block({static_cast<char*>(p), segment, nullptr, nullptr, stream, false, small});
  block->segment = ++segments_taken_;
  segments_[block->address] = block;
  stats_.reserved += segment;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  log(MemoryEvent::segment_alloc, *block);
  return block;
}

void CachingAllocator::split(Block* block, int64_t bytes) {
  Block* rest =
      new_block({block->address + bytes, block->bytes - bytes, block, block->next, block->stream, false, block->small});
  rest->segment = block->segment;
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
    discard(next);
  }
  if (Block* before = block->previous; before && !before->used) {
    pool_of(*before).erase(before);
    before->bytes += block->bytes;
    before->next = block->next;
    if (before->next) before->next->previous = before;
    discard(block);
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
        source_of(block->stream).free(block->address);
        it = pool->erase(it);
        segments_.erase(block->address);
        discard(block);
      }
}

CachingAllocator::Block* CachingAllocator::new_block(const Block& b) {
  if (spare_.size() < spare_limit) return &blocks_.emplace_back(b);
  Block* block = spare_.front();
  spare_.pop_front();
  *block = b;
  return block;
}

void CachingAllocator::discard(Block* block) { spare_.push_back(block); }

void CachingAllocator::set_limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

int64_t CachingAllocator::free_bytes() const {
  std::lock_guard lock(mutex_);
  return free_bytes_locked();
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

std::vector<SegmentState> CachingAllocator::segments() const {
  std::lock_guard lock(mutex_);
  std::vector<SegmentState> all;
  for (const auto& [address, first] : segments_) {
    SegmentState s{reinterpret_cast<uint64_t>(address), 0, first->stream, first->small, {}};
    for (const Block* b = first; b; b = b->next) {
      s.bytes += b->bytes;
      s.blocks.push_back({reinterpret_cast<uint64_t>(b->address), b->bytes, b->requested, b->used, b->category,
                          b->allocated_in, b->tensor});
    }
    all.push_back(std::move(s));
  }
  return all;
}

std::vector<std::string> CachingAllocator::faults() const {
  std::lock_guard lock(mutex_);
  return faults_;
}

void CachingAllocator::poison(bool on) {
  std::lock_guard lock(mutex_);
  poison_ = on;
}

void CachingAllocator::log(MemoryEvent::Action action, const Block& block) {
  if (!recording_) return;
  last_event_ns_ = std::max(steady_ns(), last_event_ns_ + 1);  // no two at the same time: their order is known from it
  events_.push_back({last_event_ns_, action, block.category, reinterpret_cast<uint64_t>(block.address), block.bytes,
                     block.requested, block.stream, Range::current().id, block.tensor});
}

// Giving back happens in destructors, so this cannot throw; the block, which others may hold by now, is left alone.
void CachingAllocator::report_double_free(const Block& block) noexcept {
  std::string fault =
      fmt::format("double free on {}: {} allocated in {} were freed in {}, and again in {}", device_name_,
                  mib(block.requested), place(block.allocated_in), place(block.freed_in), place(Range::current().id));
  std::fputs(("sinter: " + fault + "\n").c_str(), stderr);  // may fail, and must not throw
  faults_.push_back(std::move(fault));
}

std::string CachingAllocator::holders_by_category() const {
  std::string holders;
  for (int c = 0; c < memory_category_count; ++c)
    if (stats_.allocated_by[c] > 0)
      holders +=
          fmt::format("{}{} {}", holders.empty() ? "" : ", ", name_of(MemoryCategory(c)), mib(stats_.allocated_by[c]));
  return holders.empty() ? "nothing" : holders;
}

std::string CachingAllocator::largest_holders() const {
  std::map<std::string, int64_t> by_module;
  for (const auto& [address, first] : segments_)
    for (const Block* b = first; b; b = b->next)
      if (b->used) by_module[module_of(b->allocated_in)] += b->bytes;
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [module, bytes] : by_module) order.emplace_back(bytes, module);
  std::sort(order.rbegin(), order.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3); ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", order[i].second, mib(order[i].first));
  return text;
}

void CachingAllocator::out_of_memory(int64_t bytes) {
  int64_t free = free_bytes_locked();
  Block what{};
  what.address = reinterpret_cast<char*>(free);
  what.bytes = what.requested = bytes;
  what.category = CategoryScope::current();
  what.tensor = no_tensor;
  log(MemoryEvent::out_of_memory, what);
  std::string largest = largest_holders();
  fail_with(
      ErrorKind::memory,
      "out of memory on {}: {} more are needed ({}), {} are free{}; sinter holds {} ({}){}. Use a smaller --batch, "
      "--ctx or --size, or --dtype bf16; `sinter memory model --predict` shows what would fit",
      device_name_, mib(bytes), name_of(CategoryScope::current()), mib(free),
      limit_ == no_limit ? "" : fmt::format(" of the {} that it may take (--memory-limit)", mib(limit_)),
      mib(stats_.allocated), holders_by_category(), largest.empty() ? "" : "; most of it was allocated in " + largest);
}

}  // namespace sinter
