// Host cost of a recorded op against the bare call it ends in. Each sample times a burst of calls that fits the launch
// queue, and waits for the device outside the timed part, so only the host's side is counted. Read `per_call`; the Time
// column is a whole burst.
#include <benchmark/benchmark.h>
#include <chrono>
#include <cublasLt.h>

#include "autograd/tape.h"
#include "ops/ops.h"

void launch_bare_add(float* y, const float* a, const float* b, int n, void* stream);

namespace {

using namespace sinter;
constexpr int burst = 200, side = 64;

template <class F> void time_bursts(benchmark::State& state, F call) {
  if (!cuda_backend()) {
    state.SkipWithError(cuda_missing_reason());
    return;
  }
  for (int i = 0; i < burst; ++i) call();
  for (auto _ : state) {
    synchronize(DeviceType::cuda);
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < burst; ++i) call();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  synchronize(DeviceType::cuda);
  using benchmark::Counter;
  state.counters["per_call"] = Counter(burst, Counter::kIsIterationInvariantRate | Counter::kInvert);
}

Tensor square_matrix(DType dtype) {
  Tensor t = empty({side, side}, DType::f32, DeviceType::cuda);
  fill_normal(t, 0, 0, 1);
  return cast(t, dtype);
}

void bare_launch(benchmark::State& state) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  Tensor a = square_matrix(DType::f32), b = square_matrix(DType::f32), y = square_matrix(DType::f32);
  time_bursts(state, [&] {
    launch_bare_add(y.data_as<float>(), a.data_as<float>(), b.data_as<float>(), side * side,
                    current_stream(DeviceType::cuda));
  });
}
BENCHMARK(bare_launch)->UseManualTime()->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();

void recorded_add(benchmark::State& state) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  Tensor a = square_matrix(DType::f32), b = square_matrix(DType::f32);
  require_grad(a);
  time_bursts(state, [&] { benchmark::DoNotOptimize(add(a, b).data()); });
}
BENCHMARK(recorded_add)->UseManualTime()->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();

void bare_cublaslt(benchmark::State& state) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  Tensor a = square_matrix(DType::bf16), b = square_matrix(DType::bf16), y = square_matrix(DType::bf16);
  Tensor workspace = empty({32 << 20}, DType::u8, DeviceType::cuda);
  cublasLtHandle_t handle;
  cublasLtCreate(&handle);
  cublasLtMatmulDesc_t desc;
  cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayout_t layout;
  cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, side, side, side);
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, preference, 1, &result, &found);
  if (!found) return state.SkipWithError("cuBLASLt has no algorithm for this product");
  float one = 1, zero = 0;
  time_bursts(state, [&] {
    cublasLtMatmul(handle, desc, &one, a.data(), layout, b.data(), layout, &zero, y.data(), layout, y.data(), layout,
                   &result.algo, workspace.data(), size_t(workspace.bytes()),
                   static_cast<cudaStream_t>(current_stream(DeviceType::cuda)));
  });
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
}
BENCHMARK(bare_cublaslt)->UseManualTime()->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();

void recorded_product(benchmark::State& state) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  Tensor x = square_matrix(DType::bf16), w = square_matrix(DType::bf16);
  require_grad(w);
  time_bursts(state, [&] { benchmark::DoNotOptimize(linear(x, w).data()); });
}
BENCHMARK(recorded_product)->UseManualTime()->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();

}  // namespace
