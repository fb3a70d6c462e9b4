// Collectives over memory that the ranks of a host share (Note [Shared memory] in host_memory.h).
//
// Note [Sums in place]: an all-reduce of memory in the heaps reads every rank's numbers once, adds them in the order of
// ranks, and writes the sum to every rank at once: nothing is copied first, and no line of memory is touched a second
// time. Which rank adds which piece does not matter to the bits, so that whoever is free takes the next: with more
// ranks than cores nobody waits for one that does not run. Memory from elsewhere is copied to the heap first.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/check.h"
#include "core/clock.h"
#include "dist/group.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

constexpr int64_t piece_bytes = 256 << 10;
constexpr int64_t keep_staging = 64 << 20;  // bytes: more is given back after use
constexpr int spins = 200;
constexpr double yield_s = 0.01;  // before somebody who waits goes to sleep
constexpr double look_s = 0.05;   // how often somebody who waits looks whether others are alive

using Word = std::atomic<uint32_t>;

struct alignas(128) Slot {  // of a rank
  Word arrived, done;       // the round it has reached, and left
  Collective what;
  int64_t offset;  // of its memory in the map
};
struct Shared {
  alignas(128) std::atomic<int64_t> next[4];  // pieces taken, by round
  Slot slots[];
};

// Between processes, unlike std::atomic's.
void wake_all(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
void sleep_on(Word& word, uint32_t value, double seconds) {
  timespec t{time_t(seconds), long(1e9 * (seconds - double(time_t(seconds))))};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &t, nullptr, 0);
}

bool has_reached(uint32_t value, uint32_t round) { return int32_t(value - round) >= 0; }

class ShmGroup final : public Group {
 public:
  explicit ShmGroup(GroupSetting s)
      : Group(std::move(s)), host_(*setting().host), shared_(*static_cast<Shared*>(setting().shared)) {}
  ~ShmGroup() override {
    drain_communication(DeviceType::cpu);
    if (staging_) host_.free(staging_);
  }
  const char* name() const override { return "shm"; }
  void* pool() override { return host_.pool(); }

 private:
  Slot& slot(int rank) { return shared_.slots[rank]; }

  // All ranks have come this far, and say the same.
  void arrive(const Collective& what, int64_t offset) {
    ++round_;
    begin_ns_ = steady_ns();
    Slot& mine = slot(rank());
    mine.what = what;
    mine.offset = offset;
    shared_.next[(round_ + 2) % 4].store(0, std::memory_order_relaxed);  // nobody is there yet, nor was lately
    mine.arrived.store(round_, std::memory_order_release);
    wake_all(mine.arrived);
    for (int r = 0; r < size(); ++r) wait(slot(r).arrived, r);
    bool same = true;
    for (int r = 0; r < size(); ++r) same = same && slot(r).what == what;
    if (same) return;
    std::vector<Collective> all;
    for (int r = 0; r < size(); ++r) all.push_back(slot(r).what);
    mismatch(all);
  }
  // Nobody uses another's memory any more.
  void leave() {
    Slot& mine = slot(rank());
    mine.done.store(round_, std::memory_order_release);
    wake_all(mine.done);
    for (int r = 0; r < size(); ++r) wait(slot(r).done, r);
  }

  void wait(Word& word, int rank) {
    for (int i = 0; i < spins; ++i) {
      if (has_reached(word.load(std::memory_order_acquire), round_)) return;
      _mm_pause();
    }
    // Waking up takes longer than most waits. To yield keeps nobody from the core.
    for (int64_t begin = steady_ns(); double(steady_ns() - begin) / 1e9 < yield_s; sched_yield())
      if (has_reached(word.load(std::memory_order_acquire), round_)) return;
    for (;;) {
      uint32_t value = word.load(std::memory_order_acquire);
      if (has_reached(value, round_)) return;
      sleep_on(word, value, look_s);
      if (has_reached(word.load(std::memory_order_acquire), round_)) return;
      if (std::vector<int> gone = ended(); !gone.empty()) {
        // One that has done its part may end before we have looked.
        if (has_reached(word.load(std::memory_order_acquire), round_)) return;
        int waited_for = setting().ranks[size_t(rank)];
        bool it_is_gone = std::find(gone.begin(), gone.end(), waited_for) != gone.end();
        died(it_is_gone ? waited_for : gone[0]);
      }
      if (double(steady_ns() - begin_ns_) / 1e9 > setting().timeout_s) time_out();
    }
  }

  // Memory that others can see: where it lies, or in a copy.
  char* visible(const Collective& what, const void* in, int64_t bytes) {
    if (host_.offset_of(in, size_t(bytes)) >= 0) return const_cast<char*>(static_cast<const char*>(in));
    if (bytes > staged_) {
      if (staging_) host_.free(staging_);
      staging_ = static_cast<char*>(host_.allocate(size_t(bytes)));
      staged_ = staging_ ? bytes : 0;
      if (!staging_)
        fail_with(
            ErrorKind::memory,
            "{}: no shared memory is left for the {} bytes that other ranks must see; use fewer ranks or a smaller "
            "model, or keep the tensor in the group's pool",
            text_of(what), bytes);
    }
    std::memcpy(staging_, in, size_t(bytes));
    return staging_;
  }
  void tidy() {
    if (staged_ <= keep_staging) return;
    host_.free(staging_);
    staging_ = nullptr, staged_ = 0;
  }

  template <class T> T* of(int r, int64_t more = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(host_.at(shared_.slots[r].offset)) + more);
  }

  void do_run(const Collective& what, const void* in, void* out, void*) override {
    if (what.elements == 0) {  // a barrier, or as good as one
      arrive(what, 0), leave();
      return;
    }
    switch (what.kind) {
      case CollectiveKind::all_reduce: all_reduce(what, in, out); break;
      case CollectiveKind::reduce_scatter: reduce_scatter(what, in, out); break;
      case CollectiveKind::all_gather: all_gather(what, in, out); break;
      case CollectiveKind::broadcast: broadcast(what, in, out); break;
      case CollectiveKind::barrier: break;
    }
    tidy();
  }

  double factor(const Collective& what) const { return what.reduce == ReduceKind::average ? 1.0 / size() : 1; }

  void all_reduce(const Collective& what, const void* in, void* out) {
    bool direct = host_.offset_of(out, size_t(what.bytes())) >= 0;
    if (direct && in != out) std::memcpy(out, in, size_t(what.bytes()));
    char* mine = visible(what, direct ? out : in, what.bytes());
    arrive(what, host_.offset_of(mine, 0));
    int64_t width = size_of(what.dtype), piece = piece_bytes / width;
    std::atomic<int64_t>& next = shared_.next[round_ % 4];
    auto from = std::vector<const void*>(size_t(size()));
    auto to = std::vector<void*>(size_t(size()));
    for (;;) {
      int64_t begin = next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= what.elements) break;
      for (int r = 0; r < size(); ++r) from[size_t(r)] = to[size_t(r)] = of<char>(r, begin * width);
      add_in_order(what.dtype, from, to, std::min(piece, what.elements - begin), factor(what));
    }
    leave();
    if (mine != out) std::memcpy(out, mine, size_t(what.bytes()));
  }

  void reduce_scatter(const Collective& what, const void* in, void* out) {
    arrive(what, host_.offset_of(visible(what, in, what.bytes()), 0));
    int64_t share = what.elements / size(), width = size_of(what.dtype), piece = piece_bytes / width;
    auto from = std::vector<const void*>(size_t(size()));
    for (int64_t begin = 0; begin < share; begin += piece) {
      for (int r = 0; r < size(); ++r) from[size_t(r)] = of<char>(r, (rank() * share + begin) * width);
      add_in_order(what.dtype, from, {static_cast<char*>(out) + begin * width}, std::min(piece, share - begin),
                   factor(what));
    }
    leave();
  }

  void all_gather(const Collective& what, const void* in, void* out) {
    int64_t bytes = what.bytes() / size();
    arrive(what, host_.offset_of(visible(what, in, bytes), 0));
    for (int i = 0; i < size(); ++i) {
      int r = (rank() + i) % size();  // not all from the same one at once
      char* to = static_cast<char*>(out) + r * bytes;
      const void* from = r == rank() ? in : of<char>(r);
      if (to != from) std::memcpy(to, from, size_t(bytes));
    }
    leave();
  }

  void broadcast(const Collective& what, const void* in, void* out) {
    bool root = rank() == what.root;
    arrive(what, root ? host_.offset_of(visible(what, in, what.bytes()), 0) : 0);
    const void* from = root ? in : of<char>(what.root);
    if (out != from) std::memcpy(out, from, size_t(what.bytes()));
    leave();
  }

  HostMemory& host_;
  Shared& shared_;
  uint32_t round_ = 0;
  int64_t begin_ns_ = 0;
  char* staging_ = nullptr;
  int64_t staged_ = 0;
};

}  // namespace

size_t shm_bytes(size_t ranks) { return sizeof(Shared) + ranks * sizeof(Slot); }

std::unique_ptr<ProcessGroup> make_shm_group(GroupSetting setting) {
  return std::make_unique<ShmGroup>(std::move(setting));
}

}  // namespace sinter::dist
