// Memory, streams, events and copies through the CUDA runtime, which is linked statically: a binary built with CUDA
// starts on a machine without a driver and says what is missing.
#include "backend/device.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/exchange.cuh"
#include "backend/cuda/fused.h"
#include "backend/cuda/hopper.h"
#include "backend/cuda/runtime.h"

namespace sinter {

namespace cuda {

extern const KernelTable kernel_table;

void fail_cuda(cudaError_t error, const char* what) {
  cudaGetLastError();  // a failed launch must not be reported again by the next one
  auto kind = error == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::other;
  fail(kind,
       std::string("CUDA: ") + what + " failed: " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")");
}

void refuse(const char* kernel, const std::string& why) {
  fail(ErrorKind::usage, std::string(kernel) + " on CUDA: " + why);
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 1;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    return n;
  }();
  return count;
}

}  // namespace cuda

namespace {

using cuda::check_cuda;

cudaStream_t as_stream(void* s) { return static_cast<cudaStream_t>(s); }
cudaEvent_t as_event(void* e) { return static_cast<cudaEvent_t>(e); }

// Objects with static lifetime give things back when the driver is already gone.
void check_teardown(cudaError_t e, const char* what) {
  if (e != cudaErrorCudartUnloading && e != cudaErrorContextIsDestroyed) check_cuda(e, what);
}

// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += digits[byte >> 4], text += digits[byte & 15];
  }
  return text;
}

class CudaBackend final : public DeviceBackend {
 public:
  // `device` is the calling thread's current one.
  CudaBackend(const cudaDeviceProp& p, int device) {
    info_.type = DeviceType::cuda;
    info_.name = p.name;
    info_.memory_bytes = int64_t(p.totalGlobalMem);
    info_.compute_capability = 10 * p.major + p.minor;
    info_.multiprocessors = p.multiProcessorCount;
    info_.cache_bytes = p.l2CacheSize;
    info_.hopper_kernels = cuda::hopper::can_run();
    info_.uuid = uuid_text(p.uuid);
    info_.ordinal = device;
  }

  const KernelTable& kernels() const override { return cuda::kernel_table; }
  DeviceInfo info() const override { return info_; }

  void* allocate(size_t bytes) override {
    void* p = nullptr;
    cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(e, "cudaMalloc");
    return p;
  }
  void free(void* p) override {
    // What went wrong on the device before is what this reports, and the next call does too.
    cuda::about_to_free(cuda::Memory(p, [](void* q) { cudaFree(q); }));
  }
  int64_t free_bytes() const override { return cuda_memory().free; }

  // Non-blocking: no implicit order with the legacy default stream.
  void* create_stream(StreamRole role) override {
    cudaStream_t s;
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    // Communication shares the highest with main: which of the two should give way is settled where it is measured.
    int priority = role == StreamRole::side ? least : greatest;
    check_cuda(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
    return s;
  }
  void destroy_stream(void* s) override { check_teardown(cudaStreamDestroy(as_stream(s)), "cudaStreamDestroy"); }
  // Every event can be timed: recording a timed one costs the same on the host and under a microsecond on the device.
  void* create_event() override {
    cudaEvent_t e;
    check_cuda(cudaEventCreate(&e), "cudaEventCreate");
    return e;
  }
  void destroy_event(void* e) override { check_teardown(cudaEventDestroy(as_event(e)), "cudaEventDestroy"); }
  void record(void* e, void* s) override { check_cuda(cudaEventRecord(as_event(e), as_stream(s)), "cudaEventRecord"); }
  void wait(void* s, void* e) override {
    check_cuda(cudaStreamWaitEvent(as_stream(s), as_event(e), 0), "cudaStreamWaitEvent");
  }
  void set_count(uint32_t* count, uint32_t value, void* s) override { cuda::set_count(count, value, s); }
  void wait_for_count(void* s, uint32_t* count, uint32_t least) override { cuda::wait_for_count(s, count, least); }
  void synchronize_event(void* e) override { check_cuda(cudaEventSynchronize(as_event(e)), "cudaEventSynchronize"); }
  double elapsed_ms(void* begin, void* end) override {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, as_event(begin), as_event(end)), "cudaEventElapsedTime");
    return ms;
  }
  void synchronize(void* s) override { check_cuda(cudaStreamSynchronize(as_stream(s)), "cudaStreamSynchronize"); }

  // The runtime stages pageable memory before it returns; pinned memory is read later, so there we wait.
  void copy_from_host(void* dst, const void* src, size_t bytes, void* s) override {
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, as_stream(s)), "copy to the device");
    cudaPointerAttributes a{};
    check_cuda(cudaPointerGetAttributes(&a, src), "cudaPointerGetAttributes");
    if (a.type != cudaMemoryTypeUnregistered) synchronize(s);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes, void* s) override {
    if (bytes)
      check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, as_stream(s)), "copy from the device");
    synchronize(s);
  }
  void copy(void* dst, const void* src, size_t bytes, void* s) override {
    if (bytes)
      check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, as_stream(s)), "copy on the device");
  }
  void fill(void* dst, unsigned char byte, size_t bytes, void* s) override {
    check_cuda(cudaMemsetAsync(dst, byte, bytes, as_stream(s)), "cudaMemsetAsync");
  }

  void prepare_fused(std::span<const KernelCall* const> calls) override { cuda::prepare_fused(calls); }

  bool captures() const override { return true; }
  // Relaxed: another thread may allocate meanwhile, and our own kernels' set-up calls are allowed.
  void begin_capture(void* s) override {
    check_cuda(cudaStreamBeginCapture(as_stream(s), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  }
  void* end_capture(void* s) override {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(as_stream(s), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    cudaError_t e = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(e, "cudaGraphInstantiate");
    return executable;
  }
  void launch(void* captured, void* s) override {
    check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(captured), as_stream(s)), "cudaGraphLaunch");
  }
  void destroy_captured(void* captured) override {
    check_teardown(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(captured)), "cudaGraphExecDestroy");
  }

 private:
  DeviceInfo info_;
};

std::string version(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

struct Search {
  DeviceBackend* backend = nullptr;
  std::string reason;  // why there is none
  int ordinal = 0;
};

// "2 GPUs: cuda:0 NVIDIA H200, cuda:1 NVIDIA H200"
std::string gpus_text(int count) {
  std::string text = std::to_string(count) + (count == 1 ? " GPU: " : " GPUs: ");
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p;
    bool known = cudaGetDeviceProperties(&p, i) == cudaSuccess;
    text += (i ? ", cuda:" : "cuda:") + std::to_string(i) + " " + (known ? p.name : "(its properties cannot be read)");
  }
  return text;
}

Search find_gpu() {
  CudaVersions v = cuda_versions();
  int count = 0, current = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (v.driver == 0) return {nullptr, "no NVIDIA driver was found: install one (nvidia-smi must work)"};
  if (e == cudaErrorInsufficientDriver)
    return {nullptr, "the NVIDIA driver supports CUDA " + version(v.driver) + " but sinter was built with CUDA " +
                         version(v.runtime) + ": update the driver, or build sinter with CUDA " + version(v.driver) +
                         " or older"};
  if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0))
    return {nullptr, "the NVIDIA driver sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES"};
  if (e != cudaSuccess)
    return {nullptr, std::string("CUDA does not start: ") + cudaGetErrorName(e) + " (" + cudaGetErrorString(e) + ")"};

  bool has_current = cudaGetDevice(&current) == cudaSuccess;
  int device = settle_gpu(current, count);
  if (device >= count) return {nullptr, "this machine shows " + gpus_text(count)};
  cudaDeviceProp p;
  if (!has_current || cudaGetDeviceProperties(&p, device) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) {
    cudaGetLastError();
    return {nullptr, "CUDA finds a GPU but cannot read its properties: check nvidia-smi"};
  }
  std::string gpu =
      std::string(p.name) + " (compute capability " + std::to_string(p.major) + "." + std::to_string(p.minor) + ")";
  if (p.major < 7) return {nullptr, gpu + " is too old: sinter needs compute capability 7.0 or newer"};
  if (e = cuda::probe_kernels(); e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
                                 e == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    return {nullptr, "sinter was built without kernels for " + gpu + ": configure with -DCMAKE_CUDA_ARCHITECTURES=" +
                         std::to_string(10 * p.major + p.minor) + " and build again"};
  }
  if (e != cudaSuccess) {
    cudaGetLastError();
    return {nullptr, gpu + " cannot be used: " + cudaGetErrorName(e) + " (" + cudaGetErrorString(e) + ")"};
  }
  // Never destroyed: tensors with static lifetime may free memory after main.
  return {new CudaBackend(p, device), {}, device};
}

bool has_searched = false;

const Search& search() {
  static const Search s = (has_searched = true, find_gpu());
  return s;
}

}  // namespace

DeviceBackend* cuda_backend() {
  const Search& s = search();
  thread_local bool bound = false;
  if (s.backend && !bound) {
    check_teardown(cudaSetDevice(s.ordinal), "cudaSetDevice");
    bound = true;
  }
  return s.backend;
}
const char* cuda_missing_reason() { return search().reason.c_str(); }

void leave_gpu() {
  if (has_searched && cuda_backend()) cudaDeviceReset();
}

void* allocate_pinned(size_t bytes) {
  void* p = nullptr;
  if (cuda_backend() && cudaHostAlloc(&p, bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();
    p = nullptr;
  }
  return p;
}
void free_pinned(void* p) {
  if (p) check_teardown(cudaFreeHost(p), "cudaFreeHost");
}

CudaMemory cuda_memory() {
  size_t free = 0, total = 0;
  if (!cuda_backend()) return {};
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {int64_t(free), int64_t(total)};
}

}  // namespace sinter
