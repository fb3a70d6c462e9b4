// A weight's gradient and its AdamW update: folded into one kernel (Hopper), and apart (cuBLASLt, then the update).
// Device time; weights are taken in turn from more memory than the L2 cache holds, as a step does.
#include <benchmark/benchmark.h>

#include "backend/workspace.h"
#include "core/owned_call.h"
#include "ops/ops.h"

namespace {

using namespace sinter;

enum class How { joined, folded, apart };  // one call for all weights of a layer, one for each, or two for each

struct Weight {
  Tensor dy, x, master, m, v, copy;
};

void update(benchmark::State& state, How how, int64_t tokens, const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  if (!cuda_backend()) return state.SkipWithError(cuda_missing_reason());
  DeviceBackend& gpu = *cuda_backend();
  if (how != How::apart && !gpu.info().hopper_kernels) return state.SkipWithError("the kernel is made for Hopper");
  DeviceType cuda = DeviceType::cuda;
  auto normal = [&](Dims dims, DType type) {
    Tensor t = empty(dims, type, cuda);
    fill_normal(t, 1, 1, 1, 3);
    return t;
  };
  int64_t size = 0;
  for (auto [rows, columns] : shapes) size += rows * columns;
  std::vector<std::vector<Weight>> layers(size_t(std::max<int64_t>(1, 400'000'000 / (14 * size))));
  for (std::vector<Weight>& layer : layers)
    for (auto [rows, columns] : shapes)
      layer.push_back({normal({tokens, rows}, DType::bf16), normal({tokens, columns}, DType::bf16),
                       normal({rows, columns}, DType::f32), normal({rows, columns}, DType::f32),
                       square(normal({rows, columns}, DType::f32)), empty({rows, columns}, DType::bf16, cuda)});
  Tensor gradient = empty({size}, DType::f32, cuda);
  Tensor numbers = from_vector(std::vector<double>{3, 1e-4, 1, 0, 0, 1, 0, 0}, {step_state_size}, cuda);
  Tensor scratch = empty({int64_t(32) << 20}, DType::u8, cuda);  // as workspace.h gives a GEMM
  auto call = [&](Kernel kernel, const Attrs& attrs, const std::vector<const Tensor*>& in, const Tensor* out) {
    OwnedCall c;
    for (const Tensor* t : in) c.add_input(t->ref());
    if (out) c.add_output(out->ref());
    c.attrs = attrs;
    c.stream = current_stream(cuda);
    c.workspace = scratch.data(), c.workspace_bytes = scratch.bytes();
    kernel(c);
  };
  const KernelTable& kernels = gpu.kernels();
  auto fold = [&](const std::vector<const Tensor*>& in) {
    call(kernels.adamw_product, Attrs::of(AdamWProductAttrs{}), in, nullptr);
  };
  auto run = [&](const std::vector<Weight>& layer) {
    std::vector<const Tensor*> all{&numbers};
    for (const Weight& w : layer) {
      std::initializer_list<const Tensor*> in{&w.dy, &w.x, &w.master, &w.m, &w.v, &w.copy};
      all.insert(all.end(), in);
      if (how == How::joined) continue;
      if (how == How::folded) {
        fold(all);
        all.resize(1);
        continue;
      }
      Tensor g = reshape(slice(gradient, 0, 0, w.master.numel()), w.master.dims());
      call(kernels.matmul, Attrs::of(MatmulAttrs{true, false, true, true}), {&w.dy, &w.x}, &g);
      call(kernels.adamw, Attrs::of(AdamWAttrs{}), {&w.master, &g, &w.m, &w.v, &numbers, &w.copy}, nullptr);
    }
    if (how == How::joined) fold(all);
  };
  constexpr int burst = 20;
  void *begin = gpu.create_event(), *end = gpu.create_event();
  size_t next = 0;
  for (int i = 0; i < 3; ++i) run(layers[0]);
  for (auto _ : state) {
    gpu.record(begin, current_stream(cuda));
    for (int i = 0; i < burst; ++i) run(layers[next++ % layers.size()]);
    gpu.record(end, current_stream(cuda));
    gpu.synchronize_event(end);
    state.SetIterationTime(gpu.elapsed_ms(begin, end) / 1e3 / burst);
  }
  gpu.destroy_event(begin), gpu.destroy_event(end);
  state.counters["bytes_per_s"] = benchmark::Counter((how == How::apart ? 34.0 : 26.0) * double(size),
                                                     benchmark::Counter::kIsIterationInvariantRate);
}

void weight_update(benchmark::State& state, How how) {
  update(state, how, state.range(0), {{state.range(1), state.range(2)}});
}
// The weights of a Transformer's block, in the order of its backward pass.
void layer_update(benchmark::State& state, How how) {
  int64_t d = state.range(1), inner = state.range(2);
  update(state, how, state.range(0), {{d, inner}, {2 * inner, d}, {d, d}, {3 * d, d}});
}

void settings(benchmark::internal::Benchmark* b) { b->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.02); }
void weights(benchmark::internal::Benchmark* b) {
  settings(b);
  b->ArgNames({"tokens", "rows", "columns"});
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
void blocks(benchmark::internal::Benchmark* b) {
  settings(b);
  b->ArgNames({"tokens", "width", "inner"});
  for (int64_t tokens : {1024, 8192})
    for (int64_t width : {768, 1024, 1280, 1600, 2560}) b->Args({tokens, width, 4 * width});
}
BENCHMARK_CAPTURE(weight_update, folded, How::folded)->Apply(weights);
BENCHMARK_CAPTURE(weight_update, apart, How::apart)->Apply(weights);
BENCHMARK_CAPTURE(layer_update, joined, How::joined)->Apply(blocks);
BENCHMARK_CAPTURE(layer_update, folded, How::folded)->Apply(blocks);
BENCHMARK_CAPTURE(layer_update, apart, How::apart)->Apply(blocks);

}  // namespace
