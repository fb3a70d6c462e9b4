// What the CPU's multipliers can do at most: fp32 multiply-adds from registers to registers, on every thread. No
// product that multiplies every pair can be faster, so this is what bounds a step whose GEMMs are most of its work
// (docs/results/cpu.md).
#include <benchmark/benchmark.h>
#include <thread>

#if defined(__x86_64__)
namespace {

constexpr int sums = 12, turns = 1 << 20;  // as many sums as keep the pipes full

typedef float Wide [[gnu::vector_size(64)]];
typedef float Narrow [[gnu::vector_size(32)]];

// Compiled for the instruction set of whoever calls it; a product and a sum become one instruction there.
template <class Vector> [[gnu::always_inline]] inline float multiply_add_by(float x) {
  Vector sum[sums], a = Vector{} + x, b = 1 - a;
  for (Vector& s : sum) s = a;
  for (int t = 0; t < turns; ++t)
#pragma GCC unroll 12
    for (Vector& s : sum) s = s * a + b;
  for (int i = 1; i < sums; ++i) sum[0] += sum[i];
  return sum[0][0];
}
[[gnu::target("avx512f")]] float multiply_add_512(float x) { return multiply_add_by<Wide>(x); }
[[gnu::target("avx2,fma")]] float multiply_add_256(float x) { return multiply_add_by<Narrow>(x); }

void multiply_add(benchmark::State& state) {
  bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !__builtin_cpu_supports("fma")) return state.SkipWithError("no FMA instructions");
  for (auto _ : state) benchmark::DoNotOptimize(wide ? multiply_add_512(0.5f) : multiply_add_256(0.5f));
  double flops = 2.0 * turns * sums * (wide ? 16 : 8);
  state.counters["flops_per_s"] = benchmark::Counter(flops * double(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(multiply_add)->UseRealTime()->Threads(1)->Threads(int(std::thread::hardware_concurrency()));

}  // namespace
#endif
