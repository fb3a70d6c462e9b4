#include "ops/context.h"

#include <cstdlib>

#include "backend/activity_recorder.h"
#include "core/range.h"

namespace sinter {
namespace {

thread_local const DeviceInfo* target_of_meta = nullptr;  // null: the CPU

// Each call asks for the backend: it may be the first of a thread (Note [One GPU] in backend/device.h).
CachingAllocator::Source source_of(DeviceType device) {
  return {[device](size_t n) { return backend_of(device).allocate(n); },
          [device](void* p) { backend_of(device).free(p); }, [device] { return backend_of(device).free_bytes(); },
          [device] { synchronize(device); },
          // Bytes of ones are a NaN in every float type, and no valid token id.
          [device](void* p, size_t n, void* stream) { backend_of(device).fill(p, 0xFF, n, stream); }};
}

// Shows our ranges to nsys and ncu.
class NvtxRanges : public RangeListener {
 public:
  void entered(const RangeNode& range) override { nvtx_push(range.name.c_str()); }
  void left(const RangeNode&) override { nvtx_pop(); }
};

void show_ranges_to_tools() { [[maybe_unused]] static auto* ranges = nvtx_tool_attached() ? new NvtxRanges : nullptr; }

template <DeviceType device> CachingAllocator& the_allocator() {
  // Never destroyed: tensors with static lifetime may be released after main.
  static auto* allocator = [] {
    show_ranges_to_tools();
    auto* a = new CachingAllocator(name_of(device), source_of(device));
    const char* poison = std::getenv("SINTER_POISON");
    a->poison(poison && std::string(poison) != "0");
    return a;
  }();
  return *allocator;
}

}  // namespace

Context& context() {
  thread_local Context c;
  return c;
}

CachingAllocator& allocator_of(DeviceType device) {
  switch (device) {
    case DeviceType::cpu: return the_allocator<DeviceType::cpu>();
    case DeviceType::cuda: return the_allocator<DeviceType::cuda>();
    case DeviceType::meta: break;
  }
  return the_allocator<DeviceType::meta>();
}

void* current_stream(DeviceType device) {
  if (device != DeviceType::cuda) return nullptr;
  if (void* s = context().cuda_stream) return s;
  static void* main_stream = backend_of(DeviceType::cuda).create_stream();
  return main_stream;
}

void synchronize(DeviceType device) { backend_of(device).synchronize(current_stream(device)); }

MetaTarget::MetaTarget(const DeviceInfo& device)
    : device_(device), previous_(std::exchange(target_of_meta, &device_)) {}
MetaTarget::~MetaTarget() { target_of_meta = previous_; }
DeviceType MetaTarget::type() { return target_of_meta ? target_of_meta->type : DeviceType::cpu; }

DeviceInfo target_of(DeviceType device) {
  if (device != DeviceType::meta) return backend_of(device).info();
  return target_of_meta ? *target_of_meta : cpu_backend().info();
}

Event::Event(DeviceType device) : backend_(backend_of(device)), device_(device), native_(backend_.create_event()) {}
Event::~Event() { backend_.destroy_event(native_); }
void Event::record() { backend_.record(native_, current_stream(device_)); }
void Event::wait() { backend_.synchronize_event(native_); }
double Event::ms_since(const Event& begin) const { return backend_.elapsed_ms(begin.native_, native_); }

}  // namespace sinter
