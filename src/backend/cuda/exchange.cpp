#include "backend/cuda/exchange.h"

#include <algorithm>
#include <cstring>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/exchange.cuh"
#include "backend/cuda/runtime.h"
#include "backend/device.h"

namespace sinter::cuda {
namespace {

// Driver functions, found at run time: the binary must load on machines without a driver.
void* driver_function(const char* name, unsigned version) {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult state;
  cudaError_t e = cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &state);
  if (e != cudaSuccess || !f) fail(ErrorKind::other, std::string("CUDA: this driver lacks ") + name + "; update it");
  return f;
}
void check_driver(CUresult r, const char* what) {
  if (r != CUDA_SUCCESS) fail(ErrorKind::other, std::string("CUDA: ") + what + " failed: error " + std::to_string(r));
}

// Memory operations that follow each other in a stream, submitted as one.
class MemoryOps {
 public:
  void write(const void* at, uint32_t value) { add(at, value, CU_STREAM_MEM_OP_WRITE_VALUE_32); }
  void wait(const void* at, uint32_t value, unsigned until = CU_STREAM_WAIT_VALUE_EQ) {
    add(at, value, CU_STREAM_MEM_OP_WAIT_VALUE_32).waitValue.flags = until;
  }
  void submit(void* stream) {
    static auto f = reinterpret_cast<PFN_cuStreamBatchMemOp_v11070>(driver_function("cuStreamBatchMemOp", 11070));
    check_driver(f(static_cast<CUstream>(stream), n_, ops_, 0), "a stream memory operation");
  }

 private:
  // Waits and writes have their operands in the same places.
  CUstreamBatchMemOpParams& add(const void* at, uint32_t value, CUstreamBatchMemOpType type) {
    CUstreamBatchMemOpParams& op = ops_[n_++];
    std::memset(&op, 0, sizeof op);
    op.writeValue.operation = type;
    op.writeValue.address = CUdeviceptr(at);
    op.writeValue.value = value;
    return op;
  }
  CUstreamBatchMemOpParams ops_[3 * max_exchange_ranks + 2];
  unsigned n_ = 0;
};

cudaStream_t as_stream(void* s) { return static_cast<cudaStream_t>(s); }

struct Listeners {
  std::mutex mutex;
  std::vector<std::pair<const void*, std::function<void(const Memory&)>>> all;
};
Listeners& listeners() {
  static auto* l = new Listeners;  // memory is freed also after main
  return *l;
}

}  // namespace

RegisteredMemory::RegisteredMemory(void* p, size_t bytes) : p_(p) {
  check_cuda(cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped), "cudaHostRegister");
}
RegisteredMemory::~RegisteredMemory() { cudaHostUnregister(p_); }

struct DeviceProgress::Words : ProgressWords {};

DeviceProgress::DeviceProgress() {
  void* p = nullptr;
  check_cuda(cudaHostAlloc(&p, sizeof(Words), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  words_ = new (p) Words{};
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&words_->on_device), sizeof(uint64_t)), "cudaMalloc");
  check_cuda(cudaMemset(words_->on_device, 0, sizeof(uint64_t)), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
DeviceProgress::~DeviceProgress() {
  cudaFree(words_->on_device);
  cudaFreeHost(words_);
}
void DeviceProgress::begin(uint32_t id, void* stream) {
  MemoryOps ops;
  ops.write(&words_->current, id);
  ops.submit(stream);
}
void DeviceProgress::end(void* stream) {
  count(words_->on_device, words_, as_stream(stream));
  MemoryOps ops;
  ops.write(&words_->current, 0);
  ops.submit(stream);
}
DeviceProgress::Seen DeviceProgress::seen() const {
  const volatile ProgressWords& w = *words_;
  uint64_t finished = w.finished;
  uint32_t current = w.current;
  return {current & ~past, finished - (current & past && finished ? 1 : 0)};
}

char* allocation_base(const void* p) {
  static auto f = reinterpret_cast<PFN_cuMemGetAddressRange_v3020>(driver_function("cuMemGetAddressRange", 3020));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  check_driver(f(&base, &bytes, CUdeviceptr(p)), "cuMemGetAddressRange");
  return reinterpret_cast<char*>(base);
}

IpcHandle handle_of(void* base) {
  cudaIpcMemHandle_t h;
  check_cuda(cudaIpcGetMemHandle(&h, base), "cudaIpcGetMemHandle");
  IpcHandle handle;
  static_assert(sizeof h == sizeof handle);
  std::memcpy(&handle, &h, sizeof h);
  return handle;
}

char* open(const IpcHandle& handle) {
  cudaIpcMemHandle_t h;
  std::memcpy(&h, &handle, sizeof h);
  void* p = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess),
             "cudaIpcOpenMemHandle (GPUs that cannot see each other's memory need --backend nccl)");
  return static_cast<char*>(p);
}
void close(char* base) { cudaIpcCloseMemHandle(base); }

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(as_stream(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void set_count(uint32_t* count, uint32_t value, void* stream) {
  MemoryOps ops;
  ops.write(count, value);
  ops.submit(stream);
}
void wait_for_count(void* stream, uint32_t* count, uint32_t at_least) {
  MemoryOps ops;
  ops.wait(count, at_least, CU_STREAM_WAIT_VALUE_GEQ);
  ops.submit(stream);
}

void listen_to_frees(const void* owner, std::function<void(const Memory&)> listener) {
  std::lock_guard lock(listeners().mutex);
  std::erase_if(listeners().all, [&](const auto& l) { return l.first == owner; });
  if (listener) listeners().all.emplace_back(owner, std::move(listener));
}
void about_to_free(const Memory& memory) {
  std::lock_guard lock(listeners().mutex);
  for (auto& [owner, listener] : listeners().all) listener(memory);
}

Exchange::Exchange(int rank, int ranks, Flags* const* flags) : rank_(rank), ranks_(ranks) {
  std::copy(flags, flags + ranks, flags_);
}

void Exchange::run(const Collective& what, uint32_t id, char* const* at, void* out, void* stream) {
  DeviceProgress::Words& words = *progress_.words_;
  auto meet = [&](MemoryOps& ops, int set) {
    Flags& mine = *flags_[rank_];
    auto others = [&](auto&& f) {
      for (int i = 1; i < ranks_; ++i) f((rank_ + i) % ranks_);
    };
    others([&](int r) { ops.write(&flags_[r]->set[set][rank_], 1); });
    others([&](int r) { ops.wait(&mine.set[set][r], 1); });
    others([&](int r) { ops.write(&mine.set[set][r], 0); });
  };
  MemoryOps before, after;
  before.write(&words.current, id);
  meet(before, 0);
  before.submit(stream);

  ExchangeArgs a{};
  a.kind = what.kind;
  a.rank = rank_, a.ranks = ranks_, a.root = what.root;
  a.elements = what.elements;
  a.factor = what.reduce == ReduceKind::average ? 1.0 / ranks_ : 1;
  std::copy(at, at + ranks_, a.at);
  a.out = static_cast<char*>(out);
  a.id = id;
  a.progress = &words;
  a.count = words.on_device;
  exchange(a, what.dtype, as_stream(stream));

  meet(after, 1);
  after.write(&words.current, 0);
  after.submit(stream);
}

void Exchange::release() {
  for (auto& set : flags_[rank_]->set)
    for (uint32_t& flag : set) *static_cast<volatile uint32_t*>(&flag) = 1;
}

}  // namespace sinter::cuda
