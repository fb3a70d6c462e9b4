// Device activity through CUPTI, which is loaded when it is wanted: a machine without it runs everything else.
//
// Note [Names survive graph replays]: a kernel is joined to the range that launched it by the id that enter() pushes
// as an external correlation. A CUDA graph is launched by one call, so its kernels would all belong to whoever
// replays it; they are joined by graph node instead. Nodes are made while their ops are captured, inside the ops'
// ranges, and instantiating the graph clones them: both events are observed from the recorder's construction on, and
// each node remembers its range.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "backend/activity_recorder.h"
#include "backend/cuda/runtime.h"
#include "core/clock.h"

namespace sinter {
namespace {

// The leading fields of these records have been the same since CUDA 11; the newest type has a new name in each release.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel8;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

struct Cupti {
#define SINTER_CUPTI_FUNCTIONS(F)           \
  F(cuptiSubscribe)                         \
  F(cuptiUnsubscribe)                       \
  F(cuptiEnableCallback)                    \
  F(cuptiActivityRegisterCallbacks)         \
  F(cuptiActivityRegisterTimestampCallback) \
  F(cuptiActivityEnable)                    \
  F(cuptiActivityDisable)                   \
  F(cuptiActivityFlushAll)                  \
  F(cuptiActivityGetNextRecord)             \
  F(cuptiActivityGetNumDroppedRecords)      \
  F(cuptiActivityPushExternalCorrelationId) \
  F(cuptiActivityPopExternalCorrelationId)  \
  F(cuptiGetCallbackName)                   \
  F(cuptiGetGraphNodeId)                    \
  F(cuptiGetResultString)
#define DECLARE(name) decltype(&::name) name = nullptr;
  SINTER_CUPTI_FUNCTIONS(DECLARE)
#undef DECLARE

  std::string load() {
    void* library = nullptr;
    std::string versioned = "libcupti.so." + std::to_string(CUDART_VERSION / 1000);  // records differ between versions
    for (const char* folder :
         {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/", SINTER_CUPTI_FOLDER "/"})
      if (!library) library = dlopen((folder + versioned).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return versioned + " was not found (part of the CUDA toolkit: cuda-cupti)";
#define LOAD(name) \
  if (!((name) = reinterpret_cast<decltype(name)>(dlsym(library, #name)))) return versioned + " lacks " #name;
    SINTER_CUPTI_FUNCTIONS(LOAD)
#undef LOAD
    return "";
  }
};

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = text ? text : name;
  std::free(text);
  return result;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "Memcpy HtoD (Host -> Device)";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "Memcpy DtoH (Device -> Host)";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "Memcpy DtoD (Device -> Device)";
    default: return "Memcpy";
  }
}

class CuptiRecorder final : public ActivityRecorder {
 public:
  explicit CuptiRecorder(const Cupti& api) : cupti_(api), thread_(gettid()), pthread_(uint32_t(pthread_self())) {
    the_recorder = this;
  }
  ~CuptiRecorder() override {
    disable();
    cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);  // no buffer comes back after this
    if (subscriber_) cupti_.cuptiUnsubscribe(subscriber_);
    the_recorder = nullptr;
  }

  // What went wrong, or nothing.
  std::string attach() {
    std::string fault;
    auto ok = [&](CUptiResult r, const char* what) {
      if (r != CUPTI_SUCCESS && fault.empty()) fault = std::string(what) + ": " + text_of(r);
      return r == CUPTI_SUCCESS;
    };
    if (!ok(cupti_.cuptiSubscribe(&subscriber_, reinterpret_cast<CUpti_CallbackFunc>(&on_resource), this),
            "cuptiSubscribe")) {
      subscriber_ = nullptr;
      return fault;
    }
    for (CUpti_CallbackId id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
      ok(cupti_.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id), "cuptiEnableCallback");
    ok(cupti_.cuptiActivityRegisterTimestampCallback([] { return uint64_t(steady_ns()); }),
       "cuptiActivityRegisterTimestampCallback");
    ok(cupti_.cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
    // Tried once here, so that a refusal is known before any work is done.
    for (CUpti_ActivityKind kind : kinds) ok(cupti_.cuptiActivityEnable(kind), "cuptiActivityEnable");
    disable();
    return fault;
  }

  void enter(uint32_t range) override {
    stack.push_back(range);
    cupti_.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, range);
  }
  void leave() override {
    if (stack.empty()) return;
    stack.pop_back();
    uint64_t id;
    cupti_.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id);
  }

  void start() override {
    cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    {
      std::lock_guard lock(mutex_);  // a recording that was given up leaves nothing behind
      device_.clear(), calls_.clear(), graph_node_.clear(), range_of_correlation_.clear();
      dropped_ = 0;
    }
    for (CUpti_ActivityKind kind : kinds) check(cupti_.cuptiActivityEnable(kind), "cuptiActivityEnable");
  }

  Result stop() override {
    cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    disable();
    std::lock_guard lock(mutex_);
    attribute();
    return {std::exchange(device_, {}), std::exchange(calls_, {}), std::exchange(dropped_, 0)};
  }

 private:
  static constexpr CUpti_ActivityKind kinds[] = {
      CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
      CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET};
  static constexpr size_t buffer_bytes = 8 << 20;

  static inline std::atomic<CuptiRecorder*> the_recorder = nullptr;  // CUPTI's callbacks carry no argument
  static inline thread_local std::vector<uint32_t> stack;

  void disable() const {
    for (CUpti_ActivityKind kind : kinds) cupti_.cuptiActivityDisable(kind);
  }

  std::string text_of(CUptiResult r) const {
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return "another profiler (nsys, ncu) is attached";
    const char* text = "unknown error";
    cupti_.cuptiGetResultString(r, &text);
    return text;
  }
  void check(CUptiResult r, const char* what) const {
    if (r != CUPTI_SUCCESS) fail(ErrorKind::other, std::string("CUPTI: ") + what + ": " + text_of(r));
  }

  static void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, buffer_bytes));
    *size = *buffer ? buffer_bytes : 0;
    *max_records = 0;  // as many as fit
  }
  static void take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
    if (CuptiRecorder* r = the_recorder) {
      std::lock_guard lock(r->mutex_);
      CUpti_Activity* record = nullptr;
      while (r->cupti_.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) r->read(*record);
      size_t dropped = 0;
      r->cupti_.cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
      r->dropped_ += int64_t(dropped);
    }
    std::free(buffer);
  }

  void read(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: read_kernel(reinterpret_cast<const KernelRecord&>(record)); break;
      case CUPTI_ACTIVITY_KIND_MEMCPY: read_copy(reinterpret_cast<const CopyRecord&>(record)); break;
      case CUPTI_ACTIVITY_KIND_MEMSET: read_fill(reinterpret_cast<const FillRecord&>(record)); break;
      case CUPTI_ACTIVITY_KIND_RUNTIME: read_call(record, CUPTI_CB_DOMAIN_RUNTIME_API); break;
      case CUPTI_ACTIVITY_KIND_DRIVER: read_call(record, CUPTI_CB_DOMAIN_DRIVER_API); break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        auto& e = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
        if (e.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
          range_of_correlation_[e.correlationId] = uint32_t(e.externalId);
        break;
      }
      default: break;
    }
  }

  template <class Record> Activity& add_device(Activity::Kind kind, std::string name, const Record& r) {
    Activity a;
    a.kind = kind;
    a.name = std::move(name);
    a.begin_ns = int64_t(r.start);
    a.end_ns = int64_t(r.end);
    a.correlation = r.correlationId;
    a.device = int(r.deviceId);
    a.stream = int(r.streamId);
    graph_node_.push_back(r.graphNodeId);
    device_.push_back(std::move(a));
    return device_.back();
  }
  void read_kernel(const KernelRecord& r) {
    Activity& a = add_device(Activity::kernel, demangled(r.name), r);
    int grid[] = {r.gridX, r.gridY, r.gridZ}, block[] = {r.blockX, r.blockY, r.blockZ};
    std::copy_n(grid, 3, a.grid);
    std::copy_n(block, 3, a.block);
    a.registers = r.registersPerThread;
    a.shared_bytes = r.staticSharedMemory + r.dynamicSharedMemory;
  }
  void read_copy(const CopyRecord& r) { add_device(Activity::copy, copy_name(r.copyKind), r).bytes = int64_t(r.bytes); }
  void read_fill(const FillRecord& r) { add_device(Activity::fill, "Memset (Device)", r).bytes = int64_t(r.bytes); }
  void read_call(const CUpti_Activity& record, CUpti_CallbackDomain domain) {
    auto& r = reinterpret_cast<const CUpti_ActivityAPI&>(record);
    const char* name = nullptr;
    if (cupti_.cuptiGetCallbackName(domain, r.cbid, &name) != CUPTI_SUCCESS || !name) return;
    Activity a;
    a.kind = Activity::runtime_call;
    a.name = name;
    a.begin_ns = int64_t(r.start);
    a.end_ns = int64_t(r.end);
    a.correlation = r.correlationId;
    a.thread = r.threadId == pthread_ ? thread_ : r.threadId;  // CUPTI knows threads by what pthread_self() says
    calls_.push_back(std::move(a));
  }
  void attribute() {
    auto range_of = [&](uint32_t correlation) {
      auto it = range_of_correlation_.find(correlation);
      return it == range_of_correlation_.end() ? 0 : it->second;
    };
    for (size_t i = 0; i < device_.size(); ++i) {
      auto node = range_of_node_.find(graph_node_[i]);  // Note [Names survive graph replays]
      device_[i].range = node != range_of_node_.end() ? node->second : range_of(device_[i].correlation);
    }
    for (Activity& a : calls_) a.range = range_of(a.correlation);
    range_of_correlation_.clear();
    graph_node_.clear();
  }

  static void CUPTIAPI on_resource(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
    auto& r = *static_cast<CuptiRecorder*>(self);
    auto* graph = static_cast<CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
    uint64_t node = 0, original = 0;
    if (r.cupti_.cuptiGetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
    std::lock_guard lock(r.mutex_);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
      if (!stack.empty()) r.range_of_node_[node] = stack.back();
    } else if (r.cupti_.cuptiGetGraphNodeId(graph->originalNode, &original) == CUPTI_SUCCESS) {
      auto it = r.range_of_node_.find(original);
      if (it != r.range_of_node_.end()) r.range_of_node_[node] = uint32_t(it->second);
    }
  }

  const Cupti& cupti_;
  int64_t thread_;
  uint32_t pthread_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex mutex_;
  std::vector<Activity> device_, calls_;
  std::vector<uint64_t> graph_node_;  // of device_[i]; 0: none
  int64_t dropped_ = 0;
  std::unordered_map<uint32_t, uint32_t> range_of_correlation_;
  std::unordered_map<uint64_t, uint32_t> range_of_node_;
};

}  // namespace

std::unique_ptr<ActivityRecorder> cuda_activity_recorder(std::string& why_not) {
  static Cupti api;
  static const std::string missing = api.load();
  if (!(why_not = missing).empty()) return nullptr;
  auto recorder = std::make_unique<CuptiRecorder>(api);
  if (!(why_not = recorder->attach()).empty()) return nullptr;
  return recorder;
}

}  // namespace sinter
