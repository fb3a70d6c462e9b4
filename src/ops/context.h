// What holds for the calls a thread makes: gradient mode, precision, streams, and who listens.
#pragma once
#include <optional>

#include "backend/device.h"
#include "core/kernel_call.h"
#include "core/tensor.h"
#include "memory/caching_allocator.h"

namespace sinter {

struct OpDef;
class Interceptor;
class Recorder;

struct Context {
  bool grad_enabled = true;
  std::optional<DType> autocast;  // the 16-bit type of mixed precision
  MathMode math = MathMode::full;
  Interceptor* interceptor = nullptr;  // the newest; each knows the one before it
  void* cuda_stream = nullptr;         // null: the process's main stream
  Recorder* recorder = nullptr;        // calls are recorded instead of run
};
Context& context();

// Sets a field for as long as it lives.
template <class T> class Scoped {
 public:
  Scoped(T& field, T value) : field_(field), old_(std::exchange(field, value)) {}
  ~Scoped() { field_ = old_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& field_;
  T old_;
};

struct NoGrad : Scoped<bool> {
  NoGrad() : Scoped(context().grad_enabled, false) {}
};
struct Autocast : Scoped<std::optional<DType>> {
  explicit Autocast(std::optional<DType> type) : Scoped(context().autocast, type) {}
};

CachingAllocator& allocator_of(DeviceType device);
void* current_stream(DeviceType device);
void synchronize(DeviceType device);
// The meta device stands for this one while the object lives (this machine's CPU without one): the same
// workspaces, kernels and memory rules.
class MetaTarget {
 public:
  explicit MetaTarget(const DeviceInfo& device);
  ~MetaTarget();
  MetaTarget(const MetaTarget&) = delete;
  MetaTarget& operator=(const MetaTarget&) = delete;
  static DeviceType type();  // of what it stands for

 private:
  DeviceInfo device_;
  const DeviceInfo* previous_;
};

// A device as whoever plans for it sees it: for meta, what it stands for.
DeviceInfo target_of(DeviceType device);

// A moment on the current stream of a device.
class Event {
 public:
  explicit Event(DeviceType device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record();
  void wait();  // the host waits
  double ms_since(const Event& begin) const;
  void* native() const { return native_; }

 private:
  DeviceBackend& backend_;
  DeviceType device_;
  void* native_;
};

}  // namespace sinter
