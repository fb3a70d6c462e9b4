// A weight's gradient and its AdamW update: folded into one kernel (Hopper), and apart (cuBLASLt, then the update). Device time; weights are
// taken in turn from more memory than the L2 cache holds, as a step does.
#include <benchmark/benchmark.h>

#include "backend/workspace.h"
#include "ops/ops.h"

namespace {

using namespace sinter;

struct Weight {
  Tensor master, m, v, copy;
};

void weight_update(benchmark::State& state, bool folded) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  DeviceBackend& gpu = *cuda_backend();
  if (folded && !gpu.info().hopper_kernels) return state.SkipWithError("the kernel is made for Hopper");
  DeviceType cuda = DeviceType::cuda;
  int64_t tokens = state.range(0), rows = state.range(1), columns = state.range(2), size = rows * columns;
  auto normal = [&](Dims dims, DType type) {
    Tensor t = empty(dims, type, cuda);
    fill_normal(t, 1, 1, 1, 3);
    return t;
  };
  Tensor dy = normal({tokens, rows}, DType::bf16), x = normal({tokens, columns}, DType::bf16);
  Tensor gradient = empty({rows, columns}, DType::f32, cuda);
  Tensor numbers = from_vector(std::vector<double>{3, 1e-4, 1, 0, 0, 1, 0, 0}, {step_state_size}, cuda);
  std::vector<Weight> weights(size_t(std::max<int64_t>(1, 400'000'000 / (14 * size))));
  for (Weight& w : weights)
    w = {normal({rows, columns}, DType::f32), normal({rows, columns}, DType::f32),
         square(normal({rows, columns}, DType::f32)), empty({rows, columns}, DType::bf16, cuda)};
  Tensor scratch = empty({int64_t(32) << 20}, DType::u8, cuda);  // as workspace.h gives a product
  auto call = [&](Kernel kernel, const Attrs& attrs, std::initializer_list<const Tensor*> in, const Tensor* out) {
    KernelCall c{};
    for (const Tensor* t : in) c.in[c.n_in++] = t->ref();
    if (out) c.out[c.n_out++] = out->ref();
    c.attrs = attrs;
    c.stream = current_stream(cuda);
    c.workspace = scratch.data(), c.workspace_bytes = scratch.bytes();
    kernel(c);
  };
  const KernelTable& kernels = gpu.kernels();
  auto update = [&](const Weight& w) {
    if (folded)
      return call(kernels.adamw_product, Attrs::of(AdamWProductAttrs{}),
                  {&dy, &x, &w.master, &w.m, &w.v, &numbers, &w.copy}, nullptr);
    call(kernels.matmul, Attrs::of(MatmulAttrs{true, false, true, true}), {&dy, &x}, &gradient);
    call(kernels.adamw, Attrs::of(AdamWAttrs{}), {&w.master, &gradient, &w.m, &w.v, &numbers, &w.copy}, nullptr);
  };
  constexpr int burst = 20;
  void *begin = gpu.create_event(), *end = gpu.create_event();
  size_t next = 0;
  for (int i = 0; i < 3; ++i) update(weights[0]);
  for (auto _ : state) {
    gpu.record(begin, current_stream(cuda));
    for (int i = 0; i < burst; ++i) update(weights[next++ % weights.size()]);
    gpu.record(end, current_stream(cuda));
    gpu.synchronize_event(end);
    state.SetIterationTime(gpu.elapsed_ms(begin, end) / 1e3 / burst);
  }
  gpu.destroy_event(begin), gpu.destroy_event(end);
  state.counters["bytes_per_s"] =
      benchmark::Counter((folded ? 26.0 : 34.0) * double(size), benchmark::Counter::kIsIterationInvariantRate);
}
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"tokens", "rows", "columns"})->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.02);
  for (int64_t tokens : {1024, 8192})
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{4800, 1600},
                                 {1600, 1600},
                                 {12800, 1600},
                                 {1600, 6400},
                                 {2304, 768},
                                 {768, 768},
                                 {6144, 768},
                                 {768, 3072},
                                 {20480, 2560},
                                 {10000, 1600}})
      b->Args({tokens, rows, columns});
}
BENCHMARK_CAPTURE(weight_update, folded, true)->Apply(shapes);
BENCHMARK_CAPTURE(weight_update, apart, false)->Apply(shapes);

}  // namespace
