// CUDA's language as C++, to run a generated kernel without a GPU: its blocks run one after the other, the threads of a
// block as fibers that take turns, changing where threads of a GPU would wait for each other. Included by the source
// that the tests write, not by the tests.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#include "core/half.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct float2 {
  float x, y;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct Index {
  unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

enum class Waits { no, for_warp, for_block, forever };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[128 * 1024]};
  Waits waits = Waits::no;
  float slot = 0;  // what it offers to its warp
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current = 0;
static const std::function<void()>* body = nullptr;

static inline void wait(Waits what) {
  unsigned me = current;
  fibers[me].waits = what;
  swapcontext(&fibers[me].context, &scheduler);
}
static inline void begin() {
  (*body)();
  wait(Waits::forever);
}

static inline void run_block(unsigned threads) {
  if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
  for (unsigned t = 0; t < threads; ++t) {
    getcontext(&fibers[t].context);
    fibers[t].context.uc_stack = {fibers[t].stack.get(), 0, 128 * 1024};
    fibers[t].waits = Waits::no;
    makecontext(&fibers[t].context, begin, 0);
  }
  auto all = [&](unsigned first, unsigned last, Waits what) {
    for (unsigned t = first; t < last; ++t)
      if (fibers[t].waits != what && fibers[t].waits != Waits::forever) return false;
    return true;
  };
  auto release = [&](unsigned first, unsigned last) {
    for (unsigned t = first; t < last; ++t)
      if (fibers[t].waits != Waits::forever) fibers[t].waits = Waits::no;
  };
  while (!all(0, threads, Waits::forever)) {
    for (current = 0; current < threads; ++current)
      if (fibers[current].waits == Waits::no) {
        threadIdx.x = current;
        swapcontext(&scheduler, &fibers[current].context);
      }
    for (unsigned w = 0; w < threads; w += 32)
      if (all(w, w + 32, Waits::for_warp)) release(w, w + 32);
    if (all(0, threads, Waits::for_block)) release(0, threads);
  }
}

static inline void run(unsigned grid, unsigned block, const std::function<void()>& kernel) {
  body = &kernel;
  gridDim.x = grid, blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) run_block(block);
}

}  // namespace shim

static inline void restore_index() { threadIdx.x = shim::current; }
static inline void __syncthreads() {
  shim::wait(shim::Waits::for_block);
  restore_index();
}
static inline float __shfl_xor_sync(unsigned, float x, int mask) {
  shim::fibers[shim::current].slot = x;
  shim::wait(shim::Waits::for_warp);
  float other = shim::fibers[shim::current ^ unsigned(mask)].slot;
  shim::wait(shim::Waits::for_warp);
  restore_index();
  return other;
}

static inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
static inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

namespace sinter::cuda {
static inline float2 unpack_bf16(unsigned u) {
  return {to_float(sinter::bf16{uint16_t(u)}), to_float(sinter::bf16{uint16_t(u >> 16)})};
}
static inline float2 unpack_f16(unsigned u) {
  return {to_float(sinter::f16{uint16_t(u)}), to_float(sinter::f16{uint16_t(u >> 16)})};
}
static inline unsigned pack_bf16(float a, float b) {
  return unsigned(to_bf16(a).bits) | unsigned(to_bf16(b).bits) << 16;
}
static inline unsigned pack_f16(float a, float b) { return unsigned(to_f16(a).bits) | unsigned(to_f16(b).bits) << 16; }
}  // namespace sinter::cuda
