#include "backend/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <immintrin.h>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/asides.h"
#include "core/error.h"
#include "system/host.h"

namespace sinter::cpu {
namespace {

constexpr int ranges_per_thread = 8;  // enough to even out a busy neighbour, few enough to stay cheap
// A thread that sleeps takes about as long to wake as a short kernel runs. So it spins for longer than threads wait as
// a rule, between two kernels of a step or for the last one to finish its share of a GEMM.
constexpr auto spin_time = std::chrono::microseconds(1000);

thread_local bool inside_range = false;
thread_local bool runs_aside = false;

// Spins for a while, in the hope that `ready` comes true, before the caller goes to sleep.
template <class Ready> bool spin_until(const Ready& ready) {
  auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

struct Job {
  RangeFunction run = nullptr;
  const void* context = nullptr;
  int64_t n = 0, step = 1;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;

  // One range; false when none is left.
  bool work() {
    int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
    if (begin >= n) return false;
    inside_range = true;
    try {
      run(context, begin, std::min(n, begin + step));
    } catch (...) {
      next.store(n, std::memory_order_relaxed);  // nobody starts another range
      if (!failed.exchange(true)) error = std::current_exception();
    }
    inside_range = false;
    return true;
  }
};

// A job that threads join only while its gate is open. The gate is shut when no range is left: whoever waits for the
// job waits for those at work, never for one that is still waking up.
class Place {
 public:
  void open(int64_t n, int64_t step, RangeFunction run, const void* context) {
    job_.run = run;
    job_.context = context;
    job_.n = n;
    job_.step = step;
    job_.next.store(0, std::memory_order_relaxed);
    job_.failed.store(false, std::memory_order_relaxed);
    gate_.store(0, std::memory_order_release);
  }
  bool is_open() const { return !(gate_.load(std::memory_order_acquire) & shut); }

  // Does ranges until none is left, or `enough`. False where the gate was shut already.
  template <class Enough> bool help(const Enough& enough) {
    uint32_t g = gate_.load(std::memory_order_acquire);
    while (!(g & shut) && !gate_.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel)) {
    }
    if (g & shut) return false;
    bool left = true;
    do left = job_.work();
    while (left && !enough());
    if (!left) gate_.fetch_or(shut, std::memory_order_acq_rel);
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) == (shut | 1)) gate_.notify_all();
    return true;
  }

  bool is_over() const { return gate_.load(std::memory_order_acquire) == shut; }
  void wait_until_over() {
    while (!spin_until([this] { return is_over(); })) {
      uint32_t g = gate_.load(std::memory_order_acquire);
      if (g != shut) gate_.wait(g, std::memory_order_acquire);
    }
  }
  void rethrow() {
    if (job_.failed.load()) {
      auto error = std::exchange(job_.error, nullptr);
      std::rethrow_exception(error);
    }
  }

 private:
  static constexpr uint32_t shut = 1u << 31;  // the rest of gate_ counts those inside
  Job job_;
  std::atomic<uint32_t> gate_{shut};
};

constexpr auto never = [] { return false; };
constexpr auto after_one = [] { return true; };

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
  }

  ~Pool() {
    stop_.store(true);
    announce();
    for (auto& w : workers_) w.join();
  }

  int threads() const { return int(workers_.size()) + 1; }

  // False when another thread has the pool.
  bool run(int64_t n, int64_t step, RangeFunction run, const void* context) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    job_.open(n, step, run, context);
    announce();
    job_.help(never);
    job_.wait_until_over();
    job_.rethrow();
    return true;
  }

  // Of the thread that runs an aside: others help when they have nothing else to do, and this one
  // still takes part in the other job.
  void run_aside(int64_t n, int64_t step, RangeFunction run, const void* context) {
    aside_.open(n, step, run, context);
    announce();
    while (!aside_.is_over())
      if (!job_.help(never) && !aside_.help(after_one)) _mm_pause();
    aside_.rethrow();
  }

  void add_aside(Aside aside) {
    {
      std::lock_guard lock(asides_mutex_);
      asides_.push_back(std::move(aside));
    }
    waiting_.fetch_add(1, std::memory_order_release);
    announce();
  }
  bool help_asides() { return aside_.help(after_one) || run_next_aside(); }
  uint32_t news() const { return call_.load(std::memory_order_acquire); }
  void wait_for_news(uint32_t seen) const { call_.wait(seen, std::memory_order_acquire); }
  void announce() {
    call_.fetch_add(1, std::memory_order_acq_rel);
    call_.notify_all();
  }

 private:
  void serve() {
    uint32_t seen = 0;
    while (!stop_.load()) {
      auto called = [&] { return call_.load(std::memory_order_acquire) != seen; };
      auto aside = [&] {
        return aside_.is_open() || (waiting_.load(std::memory_order_acquire) > 0 && !running_.load() && is_ready());
      };
      if (!spin_until([&] { return called() || aside(); })) call_.wait(seen, std::memory_order_acquire);
      seen = call_.load(std::memory_order_acquire);
      if (!job_.help(never) && !aside_.help(called)) run_next_aside();
    }
  }

  // Whether the first aside can run; false also where somebody else is looking.
  bool is_ready() {
    std::unique_lock lock(asides_mutex_, std::try_to_lock);
    return lock && !asides_.empty() && asides_.front().ready();
  }

  // One at a time, in their order.
  bool run_next_aside() {
    if (waiting_.load(std::memory_order_acquire) == 0 || running_.exchange(true)) return false;
    Aside next;
    {
      std::lock_guard lock(asides_mutex_);
      if (!asides_.empty() && asides_.front().ready()) next = std::move(asides_.front()), asides_.pop_front();
    }
    if (next.run) {
      waiting_.fetch_sub(1);
      runs_aside = true;
      next.run();
      runs_aside = false;
    }
    running_.store(false);
    return bool(next.run);
  }

  std::mutex mutex_;  // held by the thread whose job runs
  Place job_, aside_;
  std::mutex asides_mutex_;
  std::deque<Aside> asides_;
  std::atomic<int> waiting_{0};       // of them: what idle threads look at
  std::atomic<bool> running_{false};  // an aside
  std::atomic<uint32_t> call_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// SINTER_THREADS, else the cores we may use.
int default_threads() {
  const char* text = std::getenv("SINTER_THREADS");
  if (!text || !*text) return host_cores();
  char* end = nullptr;
  long n = std::strtol(text, &end, 10);
  if (*end || n < 1 || n > 4096)
    fail(ErrorKind::usage, std::string("SINTER_THREADS=") + text + " is not a number of threads (1 to 4096)");
  return int(n);
}

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> p = std::make_unique<Pool>(default_threads());
  return p;
}

}  // namespace

int threads() { return pool()->threads(); }

void set_threads(int n) {
  n = std::max(1, n);
  if (n != threads()) pool() = std::make_unique<Pool>(n);
}

void add_aside(Aside aside) { pool()->add_aside(std::move(aside)); }
bool help_asides() { return pool()->help_asides(); }
uint32_t pool_news() { return pool()->news(); }
void tell_pool_news() { pool()->announce(); }
void wait_for_pool_news(uint32_t seen) { pool()->wait_for_news(seen); }
void use_no_other_threads() { inside_range = true; }

void parallel_ranges(int64_t n, int64_t grain, int64_t most, RangeFunction run, const void* context) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  int64_t units = (n + grain - 1) / grain, share = int64_t(threads()) * ranges_per_thread;
  int64_t step = std::min(most, grain * ((units + share - 1) / share));
  bool worth_sharing = n > grain && !inside_range && threads() > 1;
  if (worth_sharing && runs_aside) pool()->run_aside(n, step, run, context);
  else if (!worth_sharing || !pool()->run(n, step, run, context)) run(context, 0, n);
}

}  // namespace sinter::cpu
