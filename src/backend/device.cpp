#include "backend/device.h"

#include <atomic>
#include <mutex>

#include "core/error.h"

namespace sinter {
namespace {

// Addresses that are never dereferenced, far from any real one, and never the same twice.
class MetaBackend : public DeviceBackend {
 public:
  const KernelTable& kernels() const override { return table_; }
  DeviceInfo info() const override { return {.type = DeviceType::meta, .name = "meta (nothing is computed)"}; }
  void* allocate(size_t bytes) override {
    return reinterpret_cast<void*>(next_.fetch_add((bytes + 4095) / 4096 * 4096));
  }
  void free(void*) override {}
  int64_t free_bytes() const override { return INT64_MAX; }
  void* create_stream(StreamRole) override { return nullptr; }
  void destroy_stream(void*) override {}
  void* create_event() override { return nullptr; }
  void destroy_event(void*) override {}
  void record(void*, void*) override {}
  void wait(void*, void*) override {}
  void synchronize_event(void*) override {}
  double elapsed_ms(void*, void*) override { return 0; }
  void synchronize(void*) override {}
  void copy_from_host(void*, const void*, size_t, void*) override {}
  void copy_to_host(void*, const void*, size_t, void*) override {
    fail(ErrorKind::usage, "a value is needed on the host, but the meta device computes none");
  }
  void copy(void*, const void*, size_t, void*) override {}
  void fill(void*, unsigned char, size_t, void*) override {}

 private:
  KernelTable table_;
  std::atomic<uint64_t> next_{uint64_t(1) << 48};
};

// Note [One GPU] in device.h.
struct GpuChoice {
  std::mutex mutex;
  int ordinal = -1, preferred = -1;  // not chosen
  bool in_use = false;
};
GpuChoice& gpu_choice() {
  static GpuChoice choice;
  return choice;
}
std::string gpu_name(int ordinal) { return "cuda:" + std::to_string(ordinal); }

[[noreturn]] void refuse_cuda(const char* reason) {
  GpuChoice& c = gpu_choice();
  std::lock_guard lock(c.mutex);
  fail(ErrorKind::usage,
       "--device " + (c.ordinal > 0 ? gpu_name(c.ordinal) : "cuda") + ": " + reason + "; or use --device cpu");
}

[[noreturn]] void cannot_capture() { fail(ErrorKind::other, "this device cannot capture work for replay"); }
[[noreturn]] void no_counts() { fail(ErrorKind::other, "this device has no counts to wait for"); }

}  // namespace

void DeviceBackend::set_count(uint32_t*, uint32_t, void*) { no_counts(); }
void DeviceBackend::wait_for_count(void*, uint32_t*, uint32_t) { no_counts(); }
void DeviceBackend::begin_capture(void*) { cannot_capture(); }
void* DeviceBackend::end_capture(void*) { cannot_capture(); }
void DeviceBackend::launch(void*, void*) { cannot_capture(); }
void DeviceBackend::destroy_captured(void*) { cannot_capture(); }

void choose_gpu(int ordinal) {
  GpuChoice& c = gpu_choice();
  std::lock_guard lock(c.mutex);
  if (c.in_use && ordinal != c.ordinal)
    fail(ErrorKind::usage, "--device " + gpu_name(ordinal) + ": this process has already taken " + gpu_name(c.ordinal) +
                               ", and a process uses one GPU; start another for this one");
  c.ordinal = ordinal;
}

void prefer_gpu(int place) {
  GpuChoice& c = gpu_choice();
  std::lock_guard lock(c.mutex);
  c.preferred = place;
}

int settle_gpu(int current, int count) {
  GpuChoice& c = gpu_choice();
  std::lock_guard lock(c.mutex);
  if (c.ordinal < 0) c.ordinal = c.preferred < 0 ? current : c.preferred % count;
  c.in_use = true;
  return c.ordinal;
}

DeviceBackend& backend_of(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return cpu_backend();
    case DeviceType::cuda: {
      DeviceBackend* b = cuda_backend();
      if (!b) refuse_cuda(cuda_missing_reason());
      return *b;
    }
    case DeviceType::meta: break;
  }
  static auto* meta = new MetaBackend;
  return *meta;
}

}  // namespace sinter
