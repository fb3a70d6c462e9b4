// fp32 GEMMs on the CPU's thread pool, by OpenBLAS and packed, whatever the rule says of them (Note [Who
// multiplies] in backend/matmul_problem.h). The shapes are those of `mini` with 512 tokens: m × n × k, and
// which operands are transposed.
#include <benchmark/benchmark.h>

#include "backend/cpu/gemm.h"
#include "ops/dispatch.h"
#include "ops/ops.h"
#include "ops/table.h"

namespace {

using namespace sinter;

void cpu_product(benchmark::State& state) {
  int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  MatmulAttrs attrs;
  attrs.transpose_a = state.range(3), attrs.transpose_b = state.range(4);
  cpu::Products before = cpu::products();
  cpu::set_products(state.range(5) ? cpu::Products::packed : cpu::Products::openblas);
  auto normal = [](Dims dims, uint64_t stream) {
    Tensor t = empty(dims, DType::f32, DeviceType::cpu);
    fill_normal(t, 1, stream, 1, 3);
    return t;
  };
  int64_t batches = state.range(6);
  Tensor a = normal(attrs.transpose_a ? Dims{batches, k, m} : Dims{batches, m, k}, 1),
         b = normal(attrs.transpose_b ? Dims{batches, n, k} : Dims{batches, k, n}, 2);
  for (auto _ : state) benchmark::DoNotOptimize(dispatch(ops::matmul, Attrs::of(attrs), a, b)[0].data());
  double terms = double(batches) * double(m) * double(n) * double(k);
  state.counters["flops_per_s"] =
      benchmark::Counter(2 * terms * double(state.iterations()), benchmark::Counter::kIsRate);
  cpu::set_products(before);
}
void shapes(benchmark::internal::Benchmark* b) {
  for (auto [out, in] : {std::pair{1536, 512}, {512, 512}, {4096, 512}, {512, 2048}, {10000, 512}})
    for (int packed : {0, 1}) {
      b->Args({512, out, in, 0, 1, packed, 1});  // forward
      b->Args({512, in, out, 0, 0, packed, 1});  // the input's gradient
      b->Args({out, in, 512, 1, 0, packed, 1});  // the weight's
    }
}
// Around what the rule takes.
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
    for (int packed : {0, 1}) b->Args({m, n, k, 0, 1, packed, 1});
}
// What our kernel only gets where OpenBLAS lags behind the CPU: few rows or columns, and the heads of naive attention.
void other_shapes(benchmark::internal::Benchmark* b) {
  for (auto [m, n, k, batches] : {std::tuple{16, 2048, 512, 1},
                                  {2048, 16, 512, 1},
                                  {512, 512, 8, 1},
                                  {16, 16, 16, 1},
                                  {16, 16, 16, 256},
                                  {64, 64, 32, 32},
                                  {128, 128, 32, 32},
                                  {128, 32, 128, 32},
                                  {512, 512, 64, 8},
                                  {512, 64, 512, 8}})
    for (int packed : {0, 1})
      for (int tb : {0, 1}) b->Args({m, n, k, 0, tb, packed, batches});
}
BENCHMARK(cpu_product)
    ->Name("other_cpu_product")
    ->Apply(other_shapes)
    ->ArgNames({"m", "n", "k", "ta", "tb", "packed", "batches"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cpu_product)
    ->Name("small_cpu_product")
    ->Apply(small_shapes)
    ->ArgNames({"m", "n", "k", "ta", "tb", "packed", "batches"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(cpu_product)
    ->Apply(shapes)
    ->ArgNames({"m", "n", "k", "ta", "tb", "packed", "batches"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
