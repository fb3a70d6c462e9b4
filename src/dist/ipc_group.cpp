// GPU ranks of one host, which see each other's memory through CUDA IPC; several may share a GPU. What happens on the
// device is Note [Flags] in backend/cuda/exchange.h.
//
// Note [Exports]: any memory of the device's allocator can be communicated. Before ranks queue a collective they meet
// on the host: each says which one it is and where its numbers lie, an allocation of the driver's and an offset; those
// that have not seen that allocation open it. A captured graph has met once, when it was captured. What a rank has
// queued never waits for its host, so that ranks that wait for each other here, or in a call of the driver that waits
// for the device, always go on.
//
// Memory that is freed stays until the others have closed it. They do so when they come to a collective, while they
// wait there, or when they free something themselves.
#include <array>
#include <deque>
#include <immintrin.h>
#include <map>
#include <sched.h>
#include <unistd.h>

#include "backend/device.h"
#include "core/check.h"
#include "core/clock.h"
#include "dist/device_group.h"
#include "ops/context.h"
#include "ops/ops.h"

namespace sinter::dist {
namespace {

constexpr double patience_s = 0.5;  // that others have to close memory that is freed; then it is freed later

using Word = std::atomic<uint32_t>;
bool has_reached(uint32_t value, uint32_t count) { return int32_t(value - count) >= 0; }

struct alignas(128) Shown {  // by a rank to the others of its host
  cuda::Exchange::Flags flags;
  struct Post {
    Collective what;
    uint64_t allocation;  // a number that is not used again; 0: no memory
    uint64_t offset;
    cuda::IpcHandle handle;
  } posts[2];   // nobody is more than one ahead of who reads them
  Word posted;  // how many there were
  // Allocations that are to be closed, how many there were, and how many of each other's have been.
  std::array<uint64_t, 64> retired;
  Word retirements, closed[cuda::max_exchange_ranks];
};

class IpcGroup final : public DeviceGroup {
 public:
  IpcGroup(GroupSetting s, std::unique_ptr<ProcessGroup> host)
      : DeviceGroup(std::move(s), std::move(host)),
        shown_(static_cast<Shown*>(setting().exchanged)),
        device_(rank(), size(), flags().data()) {
    watch();
    cuda::listen_to_frees(this, [this](const cuda::Memory& memory) { retire(memory); });
  }
  ~IpcGroup() override {
    cuda::listen_to_frees(this, {});
    drain_communication(DeviceType::cuda);
    try {
      synchronize(DeviceType::cuda);
      if (std::uncaught_exceptions() == 0) leave_together();
    } catch (const Error&) {  // somebody has failed, and says so elsewhere
    }
    stop_watching();
    for (auto& [key, base] : opened_) cuda::close(base);
  }
  const char* name() const override { return "ipc"; }
  bool takes_turns(DeviceType device) const override { return device == DeviceType::cuda && setting().takes_turns; }

 private:
  Shown& mine() { return shown_[rank()]; }
  std::vector<cuda::Exchange::Flags*> flags() {
    std::vector<cuda::Exchange::Flags*> all;
    for (int r = 0; r < size(); ++r) all.push_back(&shown_[r].flags);
    return all;
  }

  void enqueue(const Collective& what, const void* in, void* out, void* stream) override {
    Collective c = what;
    if (c.elements == 0) c.kind = CollectiveKind::barrier;
    bool capturing = cuda::is_capturing(stream);  // then nothing may be closed
    if (!capturing) tidy();
    const void* seen_by_others = in;
    if (c.kind == CollectiveKind::all_reduce && in != out) {
      backend_of(DeviceType::cuda).copy(out, in, size_t(c.bytes()), stream);
      seen_by_others = out;
    }
    bool shows = c.kind != CollectiveKind::barrier && (c.kind != CollectiveKind::broadcast || rank() == c.root);
    std::vector<char*> at = meet(c, shows ? seen_by_others : nullptr, capturing);
    device_.run(c, id_of(c), at.data(), out, stream);
  }

  // Where everybody's numbers lie.
  std::vector<char*> meet(const Collective& what, const void* seen_by_others, bool capturing) {
    uint32_t count = mine().posted.load() + 1;
    Shown::Post& post = mine().posts[count % 2];
    post = {what, 0, 0, {}};
    if (seen_by_others) {
      char* base = cuda::allocation_base(seen_by_others);
      auto [at, is_new] = exports_.try_emplace(base);
      if (is_new) at->second = {++last_allocation_, cuda::handle_of(base)};
      post.allocation = at->second.number, post.handle = at->second.handle;
      post.offset = uint64_t(static_cast<const char*>(seen_by_others) - base);
    }
    mine().posted.store(count);

    std::vector<Collective> by_rank;
    std::vector<char*> at;
    bool same = true;
    for (int r = 0; r < size(); ++r) {
      wait_for(r, what, count, capturing);
      const Shown::Post& theirs = shown_[r].posts[count % 2];
      by_rank.push_back(theirs.what);
      same = same && theirs.what == what;
      if (r == rank()) at.push_back(static_cast<char*>(const_cast<void*>(seen_by_others)));
      else at.push_back(theirs.allocation ? opened(r, theirs) + theirs.offset : nullptr);
    }
    if (!same) mismatch(by_rank);
    return at;
  }

  void wait_for(int r, const Collective& what, uint32_t count, bool capturing) {
    int world_rank = setting().ranks[size_t(r)];
    int64_t begin = 0;
    for (int64_t looks = 0; !has_reached(shown_[r].posted.load(), count); ++looks) {
      if (looks < 1000) {
        _mm_pause();
        continue;
      }
      if (looks < 2000) sched_yield();
      else usleep(50);
      if (looks % 100 != 0) continue;
      if (begin == 0) {
        begin = steady_ns();
        come_to(what, count, true);  // for others to read, should this rank end here
      }
      throw_if_failed();
      if (!capturing) tidy();  // who is yet to come may be freeing memory first
      // One that has come and then ended counts as come.
      bool gone = setting().host->has_ended(world_rank) && !has_reached(shown_[r].posted.load(), count);
      bool late = double(steady_ns() - begin) / 1e9 > setting().timeout_s;
      if (gone) died(world_rank);
      if (late) time_out();
    }
  }

  char* opened(int r, const Shown::Post& post) {
    auto [at, is_new] = opened_.try_emplace({r, post.allocation}, nullptr);
    if (is_new) at->second = cuda::open(post.handle);
    return at->second;
  }

  // The device has done what uses it: a rank's collectives end when the others' do.
  void retire(const cuda::Memory& memory) {
    auto at = exports_.find(static_cast<char*>(memory.get()));
    if (at == exports_.end()) return tidy();
    try {
      synchronize(DeviceType::cuda);
    } catch (const Error&) {  // the next call that may throw says so
    }
    retiring_.push_back({at->second.number, memory});
    exports_.erase(at);
    tidy();
    for (int64_t begin = steady_ns(); patient_ && !retiring_.empty(); usleep(20)) {
      tidy();
      patient_ = double(steady_ns() - begin) / 1e9 < patience_s;
    }
    patient_ = patient_ || retiring_.empty();
  }

  // Closes what others have retired, and lets go what they have closed.
  void tidy() {
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      Word& closed = mine().closed[r];
      for (uint32_t n = closed.load(); n != shown_[r].retirements.load(); closed.store(++n)) {
        auto at = opened_.find({r, shown_[r].retired[n % shown_[r].retired.size()]});
        if (at == opened_.end()) continue;
        cuda::close(at->second);
        opened_.erase(at);
      }
    }
    auto all_have_closed = [&](uint32_t count) {
      for (int r = 0; r < size(); ++r)
        if (r != rank() && !has_reached(shown_[r].closed[rank()].load(), count) &&
            !setting().host->has_ended(setting().ranks[size_t(r)]))
          return false;
      return true;
    };
    uint32_t made = mine().retirements.load();
    while (announced_ < retiring_.size() && announced_ < mine().retired.size()) {
      mine().retired[made % mine().retired.size()] = retiring_[announced_++].number;
      mine().retirements.store(++made);
    }
    while (announced_ > 0 && all_have_closed(made - uint32_t(announced_) + 1)) {
      retiring_.pop_front();
      --announced_;
    }
    patient_ = patient_ || retiring_.empty();
  }

  // Nobody's memory goes while others have it open.
  void leave_together() {
    host().run({}, nullptr, nullptr, nullptr);
    for (auto& [key, base] : opened_) cuda::close(base);
    opened_.clear();
    host().run({}, nullptr, nullptr, nullptr);
  }

  cuda::DeviceProgress::Seen seen() const override { return device_.seen(); }
  void let_go() override { device_.release(); }

  Shown* shown_;
  cuda::Exchange device_;
  struct Export {
    uint64_t number = 0;
    cuda::IpcHandle handle = {};
  };
  std::map<char*, Export> exports_;  // by the allocation's base
  uint64_t last_allocation_ = 0;
  std::map<std::pair<int, uint64_t>, char*> opened_;  // by rank and allocation
  struct Retiring {
    uint64_t number;
    cuda::Memory memory;
  };
  std::deque<Retiring> retiring_;
  size_t announced_ = 0;  // of them, to the others
  bool patient_ = true;   // they were quick the last time
};

}  // namespace

size_t ipc_bytes(size_t ranks) { return ranks * sizeof(Shown); }

std::unique_ptr<ProcessGroup> make_ipc_group(GroupSetting setting, std::unique_ptr<ProcessGroup> host) {
  check(cuda_backend() != nullptr, "--backend ipc: {}", cuda_missing_reason());
  check(setting.ranks.size() <= size_t(cuda::max_exchange_ranks),
        "--backend ipc: {} ranks on one host are more than {}; use --backend nccl", setting.ranks.size(),
        cuda::max_exchange_ranks);
  return std::make_unique<IpcGroup>(std::move(setting), std::move(host));
}

}  // namespace sinter::dist
