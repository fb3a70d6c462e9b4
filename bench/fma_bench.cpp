// What the CPU's multipliers can do at most: fp32 multiply-adds from registers to registers, on every thread. No product can be faster, so
// this is what bounds a step whose products are most of its work (docs/results, "CPU, two threads: compiled").
#include <benchmark/benchmark.h>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>

namespace {

constexpr int sums = 12, turns = 1 << 20;  // as many sums as keep the pipes full

[[gnu::target("avx512f")]] float multiply_add_512(float x) {
  __m512 sum[sums], a = _mm512_set1_ps(x), b = _mm512_set1_ps(1 - x);
  for (__m512& s : sum) s = a;
  for (int t = 0; t < turns; ++t)
#pragma GCC unroll 12
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, a, b);
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_cvtss_f32(sum[0]);
}
[[gnu::target("avx2,fma")]] float multiply_add_256(float x) {
  __m256 sum[sums], a = _mm256_set1_ps(x), b = _mm256_set1_ps(1 - x);
  for (__m256& s : sum) s = a;
  for (int t = 0; t < turns; ++t)
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, b);
  for (int i = 1; i < sums; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return _mm256_cvtss_f32(sum[0]);
}

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
