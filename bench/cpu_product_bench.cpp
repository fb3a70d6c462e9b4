// fp32 products on the CPU's thread pool: by OpenBLAS, as eager steps do them, and packed, as compiled ones do (Note [Packed products]).
// The shapes are those of `mini` with 512 tokens: m × n × k, and which operands are transposed.
#include <benchmark/benchmark.h>

#include "ops/dispatch.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace {

using namespace sinter;

void cpu_product(benchmark::State& state) {
  int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  MatmulAttrs attrs;
  attrs.transpose_a = state.range(3), attrs.transpose_b = state.range(4), attrs.packed = state.range(5);
  auto normal = [](Dims dims, uint64_t stream) {
    Tensor t = empty(dims, DType::f32, DeviceType::cpu);
    fill_normal(t, 1, stream, 1, 3);
    return t;
  };
  Tensor a = normal(attrs.transpose_a ? Dims{k, m} : Dims{m, k}, 1),
         b = normal(attrs.transpose_b ? Dims{n, k} : Dims{k, n}, 2);
  for (auto _ : state) benchmark::DoNotOptimize(dispatch(ops::matmul, Attrs::of(attrs), a, b)[0].data());
  state.counters["flops_per_s"] = benchmark::Counter(
      2.0 * double(m) * double(n) * double(k) * double(state.iterations()), benchmark::Counter::kIsRate);
}
void shapes(benchmark::internal::Benchmark* b) {
  for (auto [out, in] : {std::pair{1536, 512}, {512, 512}, {4096, 512}, {512, 2048}, {10000, 512}})
    for (int packed : {0, 1}) {
      b->Args({512, out, in, 0, 1, packed});  // forward
      b->Args({512, in, out, 0, 0, packed});  // the input's gradient
      b->Args({out, in, 512, 1, 0, packed});  // the weight's
    }
}
// Around what pass `pack` takes.
void small_shapes(benchmark::internal::Benchmark* b) {
  for (auto [m, n, k] : {std::tuple{64, 64, 64},
                         {64, 64, 256},
                         {64, 64, 1024},
                         {128, 128, 64},
                         {128, 128, 128},
                         {64, 512, 64},
                         {128, 256, 64},
                         {64, 256, 256},
                         {256, 256, 64},
                         {128, 512, 64},
                         {64, 1024, 64},
                         {64, 128, 512},
                         {256, 256, 256},
                         {64, 4096, 512}})
    for (int packed : {0, 1}) b->Args({m, n, k, 0, 1, packed});
}
BENCHMARK(cpu_product)
    ->Name("small_cpu_product")
    ->Apply(small_shapes)
    ->ArgNames({"m", "n", "k", "ta", "tb", "packed"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cpu_product)
    ->Apply(shapes)
    ->ArgNames({"m", "n", "k", "ta", "tb", "packed"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
