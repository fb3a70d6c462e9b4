#include "backend/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <immintrin.h>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/host.h"

namespace sinter::cpu {
namespace {

constexpr int ranges_per_thread = 8;  // enough to even out a busy neighbour, few enough to stay cheap
// A thread that sleeps takes about as long to wake as a short kernel runs. So it spins for longer than threads wait as a rule, between two kernels of a step
// or for the last one to finish its share of a product.
constexpr auto spin_time = std::chrono::microseconds(1000);

thread_local bool inside_range = false;

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

  void work() {
    inside_range = true;
    for (;;) {
      int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
      if (begin >= n) break;
      try {
        run(context, begin, std::min(n, begin + step));
      } catch (...) {
        next.store(n, std::memory_order_relaxed);  // nobody starts another range
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
    inside_range = false;
  }
};

// Workers join a job only while its gate is open, and the caller shuts the gate when no range is left: it waits for
// those at work, never for one that is still waking up.
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
  bool run(int64_t n, int64_t grain, int64_t most, RangeFunction run, const void* context) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    int64_t units = (n + grain - 1) / grain, share = int64_t(threads()) * ranges_per_thread;
    job_.run = run;
    job_.context = context;
    job_.n = n;
    job_.step = std::min(most, grain * ((units + share - 1) / share));
    job_.next.store(0, std::memory_order_relaxed);
    job_.failed.store(false, std::memory_order_relaxed);
    gate_.store(0, std::memory_order_release);
    announce();
    job_.work();
    gate_.fetch_or(shut, std::memory_order_acq_rel);
    wait_until_empty();
    if (job_.failed.load()) {
      auto error = std::exchange(job_.error, nullptr);
      std::rethrow_exception(error);
    }
    return true;
  }

 private:
  static constexpr uint32_t shut = 1u << 31;  // the rest of gate_ counts the workers inside

  void announce() {
    call_.fetch_add(1, std::memory_order_acq_rel);
    call_.notify_all();
  }

  void wait_until_empty() {
    auto empty = [this] { return gate_.load(std::memory_order_acquire) == shut; };
    while (!spin_until(empty)) {
      uint32_t g = gate_.load(std::memory_order_acquire);
      if (g != shut) gate_.wait(g, std::memory_order_acquire);
    }
  }

  void serve() {
    uint32_t seen = 0;
    while (!stop_.load()) {
      auto called = [&] { return call_.load(std::memory_order_acquire) != seen; };
      if (!spin_until(called)) call_.wait(seen, std::memory_order_acquire);
      seen = call_.load(std::memory_order_acquire);
      uint32_t g = gate_.load(std::memory_order_acquire);
      while (!(g & shut) && !gate_.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel)) {
      }
      if (g & shut) continue;
      job_.work();
      if (gate_.fetch_sub(1, std::memory_order_acq_rel) == (shut | 1)) gate_.notify_one();
    }
  }

  std::mutex mutex_;  // held by the thread whose job runs
  Job job_;
  std::atomic<uint32_t> call_{0}, gate_{shut};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

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

void parallel_ranges(int64_t n, int64_t grain, int64_t most, RangeFunction run, const void* context) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  bool shared = n > grain && !inside_range && threads() > 1 && pool()->run(n, grain, most, run, context);
  if (!shared) run(context, 0, n);
}

}  // namespace sinter::cpu
