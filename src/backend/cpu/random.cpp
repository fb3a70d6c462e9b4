// Random numbers from counters: element i is word i % 4 of block i / 4, on every backend (Note [Same bits everywhere]).
#include "backend/cpu/strips.h"
#include "core/philox.h"

namespace sinter::SINTER_CPU_ISA {
namespace {

constexpr int64_t strip = 1024;  // a multiple of the block

// value_of(bits) for each element, computed as A and stored as the output's type.
template <class A, class F> void fill_with(const KernelCall& call, const F& value_of) {
  const TensorRef& out = call.out[0];
  const auto& attrs = call.attrs.as<RandomAttrs>();
  int64_t n = numel(out);
  parallel_for((n + strip - 1) / strip, 4, [&](int64_t begin, int64_t end) {
    A* spare = buffer<A>(0, strip);
    uint32_t* bits = buffer<uint32_t>(1, strip);
    for (int64_t s = begin; s < end; ++s) {
      int64_t first = s * strip;
#pragma omp simd
      for (int64_t j = 0; j < strip / 4; ++j) {
        PhiloxBlock block = philox(attrs.seed, attrs.stream, uint64_t(first / 4 + j));
        for (int k = 0; k < 4; ++k) bits[4 * j + k] = block.v[k];
      }
#pragma omp simd
      for (int64_t j = 0; j < strip; ++j) spare[j] = value_of(bits[j]);
      store_strip(out.as<char>() + first * size_of(out.dtype), out.dtype, min_of(strip, n - first), 1, spare, false);
    }
  });
}

}  // namespace

void random_normal(const KernelCall& call) {
  const auto& attrs = call.attrs.as<RandomAttrs>();
  float p_low, p_high, scale = float(attrs.scale);
  cpu::normal_ends(attrs.low, attrs.high, p_low, p_high);
  fill_with<float>(call, [=](uint32_t bits) { return scale * truncated_normal_of(bits, p_low, p_high); });
}

void random_uniform(const KernelCall& call) {
  const auto& attrs = call.attrs.as<RandomAttrs>();
  float low = float(attrs.low), range = float(attrs.high) - float(attrs.low);
  fill_with<float>(call, [=](uint32_t bits) { return fmaf(range, uniform_of(bits), low); });
}

void random_integers(const KernelCall& call) {
  const auto& attrs = call.attrs.as<RandomAttrs>();
  int64_t low = int64_t(attrs.low);
  uint64_t range = uint64_t(int64_t(attrs.high) - low);
  fill_with<int64_t>(call, [=](uint32_t bits) { return low + int64_t(integer_of(bits, range)); });
}

}  // namespace sinter::SINTER_CPU_ISA
