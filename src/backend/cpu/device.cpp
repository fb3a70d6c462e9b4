// The CPU as a device. On the null stream a call is over when it returns, so that an event is a time stamp. Other
// streams queue their calls (stream.h); an event on one also says how many of them to wait for.
#include "backend/device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>

#include "backend/cpu/asides.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/stream.h"
#include "backend/cpu/thread_pool.h"
#include "core/error.h"
#include "system/host.h"

namespace sinter {

namespace cpu_v3 {
const KernelTable& table();
}
namespace cpu_v4 {
const KernelTable& table();
}

namespace {

enum class Isa { v3, v4 };

bool machine_has(Isa isa) {
  return isa == Isa::v4 ? __builtin_cpu_supports("x86-64-v4") : __builtin_cpu_supports("x86-64-v3");
}

// SINTER_CPU_ISA=v3|v4 overrides the choice, for tests and measurements.
Isa choose_isa() {
  if (!machine_has(Isa::v3)) fail(ErrorKind::usage, "this CPU lacks AVX2/FMA (x86-64-v3), which sinter needs");
  const char* wish = std::getenv("SINTER_CPU_ISA");
  if (!wish || !*wish) return machine_has(Isa::v4) ? Isa::v4 : Isa::v3;
  if (std::strcmp(wish, "v3") == 0) return Isa::v3;
  if (std::strcmp(wish, "v4") != 0)
    fail(ErrorKind::usage, std::string("SINTER_CPU_ISA=") + wish + " is unknown: use v3 or v4");
  if (!machine_has(Isa::v4)) fail(ErrorKind::usage, "SINTER_CPU_ISA=v4, but this CPU lacks AVX-512 (x86-64-v4)");
  return Isa::v4;
}

Isa isa() {
  static const Isa chosen = choose_isa();
  return chosen;
}

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point time;
  cpu::Stream* stream = nullptr;
  int64_t calls = 0;  // of the stream's, that it stands for
};
Event& event_at(void* event) { return *static_cast<Event*>(event); }
cpu::Stream* as_stream(void* stream) { return static_cast<cpu::Stream*>(stream); }

class CpuBackend final : public DeviceBackend {
 public:
  CpuBackend() : table_(isa() == Isa::v4 ? cpu_v4::table() : cpu_v3::table()) {}

  const KernelTable& kernels() const override { return table_; }

  DeviceInfo info() const override {
    return {.name = cpu_model(),
            .memory_bytes = host_memory_bytes(),
            .compute_capability = 0,
            .multiprocessors = cpu::threads()};
  }

  void* allocate(size_t bytes) override {
    constexpr size_t huge_page = size_t(2) << 20, worth_asking = size_t(16) << 20;
    // Linux promises more than it has and kills us later, so big requests are held against what is really there.
    if (bytes >= worth_asking && int64_t(bytes) > host_free_bytes()) return nullptr;
    size_t alignment = bytes >= huge_page ? huge_page : 64;
    size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* p = std::aligned_alloc(alignment, rounded);
    if (p && bytes >= huge_page)
      madvise(p, rounded, MADV_HUGEPAGE);  // fewer page faults and TLB misses; may be refused
    return p;
  }
  void free(void* p) override { std::free(p); }
  int64_t free_bytes() const override { return host_free_bytes(); }

  void* create_stream(StreamRole role) override {
    switch (role) {
      case StreamRole::main: return nullptr;
      case StreamRole::side: return static_cast<cpu::Stream*>(new cpu::SideStream);
      default: return static_cast<cpu::Stream*>(new cpu::ThreadStream(role));
    }
  }
  void destroy_stream(void* stream) override { delete as_stream(stream); }
  void* create_event() override { return new Event{.time = Clock::now()}; }
  void destroy_event(void* event) override { delete &event_at(event); }
  void record(void* event, void* stream) override {
    cpu::Stream* s = as_stream(stream);
    event_at(event) = {Clock::now(), s, s ? s->submitted() : 0};
  }
  // The caller's own calls are over when they return: it waits now, and other streams when they come to it.
  void wait(void* stream, void* event) override {
    const Event& e = event_at(event);
    if (!e.stream || e.stream == stream) return;
    if (cpu::Stream* s = as_stream(stream)) s->wait_for(*e.stream, e.calls);
    else e.stream->wait(e.calls);
  }
  void synchronize_event(void* event) override {
    if (const Event& e = event_at(event); e.stream) e.stream->wait(e.calls);
  }
  double elapsed_ms(void* begin, void* end) override {
    return std::chrono::duration<double, std::milli>(event_at(end).time - event_at(begin).time).count();
  }
  void synchronize(void* stream) override {
    if (cpu::Stream* s = as_stream(stream)) s->wait(s->submitted());
  }
  void submit(Kernel kernel, const KernelCall& call, const CallLabel& label) override {
    if (cpu::Stream* s = as_stream(call.stream)) return s->submit(kernel, call, label);
    kernel(call);
    // A single thread has no idle time: what is ready is done at once.
    if (cpu::threads() == 1)
      while (cpu::help_asides()) continue;
  }
  bool fills_idle_time() const override { return cpu::threads() > 1; }

  void copy_from_host(void* dst, const void* src, size_t bytes, void*) override { copy(dst, src, bytes, nullptr); }
  void copy_to_host(void* dst, const void* src, size_t bytes, void*) override { copy(dst, src, bytes, nullptr); }
  void fill(void* dst, unsigned char byte, size_t bytes, void*) override { std::memset(dst, byte, bytes); }
  void copy(void* dst, const void* src, size_t bytes, void*) override {
    parallel_for(int64_t(bytes), int64_t(1) << 18, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin, size_t(end - begin));
    });
  }

 private:
  const KernelTable& table_;
};

}  // namespace

DeviceBackend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

std::string cpu_isa_name() { return isa() == Isa::v4 ? "x86-64-v4 (AVX-512)" : "x86-64-v3 (AVX2)"; }

}  // namespace sinter
