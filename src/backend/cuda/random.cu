// Random tensors, four elements per Philox block and thread. Compiled with -fmad=false: Note [Same bits everywhere] in
// core/philox.h. Speed of light: one write (about 60 integer operations per element hide behind it at 4 bytes).
#include "backend/cuda/device_math.cuh"
#include "core/attrs.h"
#include "core/philox.h"

namespace sinter::cuda {

namespace {

constexpr int threads = 256;

struct RandomArgs {
  void* out;
  int64_t n;
  uint64_t seed, stream;
  DType type;
};

// out[i] = draw(bits of element i), in the type C that draw returns.
template <class Draw> __global__ void __launch_bounds__(threads) random_elements(RandomArgs a, Draw draw) {
  int64_t block = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (4 * block >= a.n) return;
  PhiloxBlock r = philox(a.seed, a.stream, uint64_t(block));
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (4 * block + i < a.n) store(a.out, a.type, 4 * block + i, draw(r.v[i]));
}

struct DrawNormal {
  float p_low, p_high, scale;
  __device__ float operator()(uint32_t bits) const { return scale * truncated_normal_of(bits, p_low, p_high); }
};
struct DrawUniform {
  float low, range;
  __device__ float operator()(uint32_t bits) const { return fmaf(range, uniform_of(bits), low); }
};
struct DrawInteger {
  int64_t low;
  uint64_t range;
  __device__ int64_t operator()(uint32_t bits) const { return low + int64_t(integer_of(bits, range)); }
};

template <class Draw> void draw_into(const char* name, const KernelCall& call, const Draw& draw) {
  const auto& attrs = call.attrs.as<RandomAttrs>();
  RandomArgs a{call.out[0].data, numel(call.out[0]), attrs.seed, attrs.stream, call.out[0].dtype};
  if (a.n == 0) return;
  launch(name, random_elements<Draw>, grid_of(name, ceil_div(a.n, 4 * threads)), threads, stream_of(call), a, draw);
}

}  // namespace

void random_normal(const KernelCall& call) {
  const auto& a = call.attrs.as<RandomAttrs>();
  draw_into("random_normal", call, DrawNormal{normal_cdf(a.low), normal_cdf(a.high), float(a.scale)});
}
void random_uniform(const KernelCall& call) {
  const auto& a = call.attrs.as<RandomAttrs>();
  draw_into("random_uniform", call, DrawUniform{float(a.low), float(a.high) - float(a.low)});
}
void random_integers(const KernelCall& call) {
  const auto& a = call.attrs.as<RandomAttrs>();
  int64_t low = int64_t(a.low), high = int64_t(a.high);
  draw_into("random_integers", call, DrawInteger{low, uint64_t(high - low)});
}

}  // namespace sinter::cuda
