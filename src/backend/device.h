// What the engine asks of a machine besides kernels: memory, streams, events, copies. One implementation per device
// type; CUDA's is a stub where the build or the machine has no GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backend/kernels.h"
#include "core/device.h"

namespace sinter {

// What passes, workspaces and predictions ask of a device, whether it is here or meta stands for it.
struct DeviceInfo {
  DeviceType type = DeviceType::cpu;
  std::string name;             // "NVIDIA H200", "AMD EPYC …"
  int64_t memory_bytes = 0;     // in all
  int compute_capability = 0;   // 90 for Hopper; 0 on the CPU
  int multiprocessors = 0;      // or CPU threads in use
  int64_t cache_bytes = 0;      // a GPU's L2; 0: not known
  bool hopper_kernels = false;  // those for sm_90a can run: the GPU and this build have it
  std::string uuid = {};        // "GPU-1b2c…", which names it to other tools; empty on the CPU
  int ordinal = 0;              // CUDA's, among the GPUs this process may see
};

// What a stream is for. Communication goes first where streams compete, and what fills idle time last.
enum class StreamRole : uint8_t { main, side, communication, copy };

// What a call is to whoever records what streams do.
struct CallLabel {
  const char* name = "";
  uint32_t range = 0;  // where it was made
  bool communication = false;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual const KernelTable& kernels() const = 0;
  virtual DeviceInfo info() const = 0;

  virtual void* allocate(size_t bytes) = 0;  // null when there is not enough
  virtual void free(void* p) = 0;
  virtual int64_t free_bytes() const = 0;  // what could be allocated now

  // Streams and events are native handles. The CPU runs everything at once on null streams, which are its main ones.
  // Its side streams fill idle time, and those of the other roles have a thread of their own.
  virtual void* create_stream(StreamRole role = StreamRole::main) = 0;
  virtual void destroy_stream(void* stream) = 0;
  virtual void* create_event() = 0;
  virtual void destroy_event(void* event) = 0;
  virtual void record(void* event, void* stream) = 0;
  virtual void wait(void* stream, void* event) = 0;  // later work on the stream waits for the event
  // The same by a count in the device's memory, of a GPU that processes take turns on: Note [Taking turns] in
  // backend/cuda/exchange.h.
  virtual void set_count(uint32_t* count, uint32_t value, void* stream);
  virtual void wait_for_count(void* stream, uint32_t* count, uint32_t at_least);
  virtual void synchronize_event(void* event) = 0;
  virtual double elapsed_ms(void* begin, void* end) = 0;  // both complete
  virtual void synchronize(void* stream) = 0;
  // A call on its stream. It must exist until it is over.
  virtual void submit(Kernel kernel, const KernelCall& call, const CallLabel&) { kernel(call); }

  virtual void copy_from_host(void* dst, const void* src, size_t bytes, void* stream) = 0;  // src reusable on return
  virtual void copy_to_host(void* dst, const void* src, size_t bytes, void* stream) = 0;    // complete on return
  virtual void copy(void* dst, const void* src, size_t bytes, void* stream) = 0;
  virtual void fill(void* dst, unsigned char byte, size_t bytes, void* stream) = 0;

  // Calls of `fused` that will be made: their kernels are made ready now, where they have to be generated.
  virtual void prepare_fused(std::span<const KernelCall* const>) {}

  // Work submitted between the two is not run but becomes one thing that can be launched as often as wanted. Where that
  // is not to be had, captures() is false and nothing else may be called.
  virtual bool captures() const { return false; }
  // Whether lanes are worth streams of their own also without capturing them.
  virtual bool fills_idle_time() const { return false; }
  virtual void begin_capture(void* stream);
  virtual void* end_capture(void* stream);
  virtual void launch(void* captured, void* stream);
  virtual void destroy_captured(void* captured);
};

DeviceBackend& cpu_backend();
DeviceBackend* cuda_backend();      // null without a usable GPU; the GPU becomes the calling thread's current one
const char* cuda_missing_reason();  // why it is null, and what to do
DeviceBackend& backend_of(DeviceType type);  // for meta: a table of no kernels and fake addresses

// Note [One GPU]: a process uses one GPU. It may be chosen until the CUDA backend is first used, and cannot be changed
// from then on; without a choice it is the one that is current then, the first unless an embedding program has said
// otherwise. CUDA keeps a current GPU for every thread, so each thread gets ours as it asks for the backend. Whether
// the ordinal exists is found out at the first use.
void choose_gpu(int ordinal);
void prefer_gpu(int place);  // unless one is chosen: the one at this place, counted round, for ranks of one host
int settle_gpu(int current, int count);  // for the CUDA backend: the one to use, for good

}  // namespace sinter
