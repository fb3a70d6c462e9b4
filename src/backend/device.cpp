#include "backend/device.h"

#include <atomic>

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
  void* create_stream(bool) override { return nullptr; }
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

[[noreturn]] void cannot_capture() { fail(ErrorKind::other, "this device cannot capture work for replay"); }

}  // namespace

void DeviceBackend::begin_capture(void*) { cannot_capture(); }
void* DeviceBackend::end_capture(void*) { cannot_capture(); }
void DeviceBackend::launch(void*, void*) { cannot_capture(); }
void DeviceBackend::destroy_captured(void*) { cannot_capture(); }

DeviceBackend& backend_of(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return cpu_backend();
    case DeviceType::cuda: {
      DeviceBackend* b = cuda_backend();
      if (!b) fail(ErrorKind::usage, std::string("--device cuda: ") + cuda_missing_reason() + "; or use --device cpu");
      return *b;
    }
    case DeviceType::meta: break;
  }
  static auto* meta = new MetaBackend;
  return *meta;
}

}  // namespace sinter
