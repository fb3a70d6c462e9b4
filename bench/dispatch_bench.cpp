// What a call costs the host apart from any kernel: the meta device runs everything but the launch.
#include <benchmark/benchmark.h>

#include "autograd/tape.h"
#include "ops/ops.h"

namespace {

using namespace sinter;

// A recorded two-input pointwise op: shape rule, output memory, tape node, and the release of all three.
void dispatch_add(benchmark::State& state) {
  Tensor a = empty({64, 64}, DType::f32, DeviceType::meta), b = empty({64, 64}, DType::f32, DeviceType::meta);
  require_grad(a);
  for (auto _ : state) benchmark::DoNotOptimize(add(a, b).data());
}
BENCHMARK(dispatch_add);

void dispatch_linear(benchmark::State& state) {
  Tensor x = empty({4, 64, 64}, DType::f32, DeviceType::meta), w = empty({64, 64}, DType::f32, DeviceType::meta);
  require_grad(w);
  for (auto _ : state) benchmark::DoNotOptimize(linear(x, w).data());
}
BENCHMARK(dispatch_linear);

}  // namespace
