// Ranks that compute together, as kernels see them. Implementations are in dist/.
#pragma once
#include <cstdint>

#include "core/device.h"
#include "core/kernel_call.h"

namespace sinter {

enum class CollectiveKind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
enum class ReduceKind : uint8_t { sum, average };
inline const char* name_of(CollectiveKind k) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  return names[int(k)];
}

// What all ranks must agree on.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::f32;
  int32_t root = 0;      // of a broadcast
  int64_t elements = 0;  // of the whole: what is reduced, scattered, gathered or sent; not of one rank's share

  bool operator==(const Collective&) const = default;
  int64_t bytes() const { return elements * size_of(dtype); }
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "shm"

  // This rank's part of a collective; all ranks make the same ones in the same order. Returns when `out` holds the
  // result and no other rank uses `in` any more, and throws ErrorKind::peer if that can no longer be. 16-bit numbers
  // are added in fp32. With size() ranks and share = elements / size():
  //   all_reduce      in, out: elements (the same place, or apart)
  //   reduce_scatter  in: elements, out: share (a place of its own, or its part of `in`)
  //   all_gather      in: share, out: elements (a place of its own, or `in` is its part of `out`)
  //   broadcast       in of the root: elements, out of all: elements (the same place, or apart)
  // With a GPU's stream it is queued there instead, and memory is the GPU's; throw_if_failed() throws what went wrong.
  virtual void run(const Collective& what, const void* in, void* out, void* stream) = 0;

  // Of what is queued: throws ErrorKind::peer once a collective cannot be done, or has not been for too long.
  virtual void throw_if_failed() {}
  // Whether what is queued can become part of a captured graph.
  virtual bool captures() const { return true; }
  // Ranks share a device and take turns on it: Note [Taking turns] in backend/cuda/exchange.h.
  virtual bool takes_turns(DeviceType) const { return false; }

  // A pool of the device's allocator (CachingAllocator::add_pool) whose memory needs no copy before it is
  // communicated; null where any memory does.
  virtual void* pool() { return nullptr; }
};

struct CollectiveAttrs {
  ProcessGroup* group = nullptr;
  ReduceKind reduce = ReduceKind::sum;
  int32_t root = 0;
};

// The kernel `collective` of every backend: the group knows the device's memory.
inline void run_collective(const KernelCall& call, void* stream) {
  const auto& attrs = call.attrs.as<CollectiveAttrs>();
  auto kind = CollectiveKind(call.variant);
  bool in_place = call.n_in == 1;
  const TensorRef &in = call.in[0], &out = call.in[in_place ? 0 : 1];
  const TensorRef& whole = kind == CollectiveKind::all_gather ? out : in;
  attrs.group->run({kind, attrs.reduce, whole.dtype, attrs.root, numel(whole)}, in.data, out.data, stream);
}

}  // namespace sinter
