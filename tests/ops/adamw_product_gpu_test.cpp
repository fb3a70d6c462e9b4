// The kernel that updates a weight by a gradient it never stores: CUDA's against the CPU's, which multiplies and updates one after the other.
#include <cmath>
#include <fmt/format.h>

#include "backend/device.h"
#include "backend/workspace.h"
#include "ops/ops.h"
#include "support/gpu.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Update {
  Tensor dy, x, master, m, v, state, copy;

  Update on(DeviceType device) const {
    auto moved = [&](const Tensor& t) { return t.defined() ? to(t, device) : t; };
    return {moved(dy), moved(x), moved(master), moved(m), moved(v), moved(state), moved(copy)};
  }
  // dy and x as the first columns of wider rows.
  void run(double share = 1, int64_t columns_of_dy = 0, int64_t columns_of_x = 0) {
    KernelCall call{};
    for (const Tensor* t : {&dy, &x, &master, &m, &v, &state, &copy})
      if (t->defined()) call.in[call.n_in++] = t->ref();
    if (columns_of_dy) call.in[0].dims[call.in[0].rank - 1] = columns_of_dy;
    if (columns_of_x) call.in[1].dims[call.in[1].rank - 1] = columns_of_x;
    call.attrs = Attrs::of(AdamWProductAttrs{{.beta1 = 0.8, .weight_decay = 0.1}, share});
    call.stream = current_stream(dy.device());
    call.workspace_bytes = workspace::adamw_product(call, dy.device());
    Tensor scratch = empty({call.workspace_bytes + 1}, DType::u8, dy.device());
    call.workspace = scratch.data();
    backend_of(dy.device()).kernels().adamw_product(call);
  }
};

Update random_update(int64_t batch, int64_t tokens, int64_t rows, int64_t columns, bool with_copy, uint64_t seed) {
  auto normal = [&](Dims dims, DType type, uint64_t stream) {
    Tensor t = empty(dims, type, DeviceType::cpu);
    fill_normal(t, seed, stream, 1, 3);
    return t;
  };
  return {normal({batch, tokens, rows}, DType::bf16, 1),
          normal({batch, tokens, columns}, DType::bf16, 2),
          normal({rows, columns}, DType::f32, 3),
          normal({rows, columns}, DType::f32, 4),
          square(normal({rows, columns}, DType::f32, 5)),
          from_vector(std::vector<double>{3, 0.01, 1, 0, 0, 0.5, 0, 0}, {step_state_size}, DeviceType::cpu),
          with_copy ? zeros({rows, columns}, DType::bf16, DeviceType::cpu) : Tensor()};
}

void expect_close(const Update& ours, const Update& reference, const std::string& what) {
  auto error = [](const Tensor& a, const Tensor& b) { return normwise_error(to_vector(a), to_vector(b)); };
  EXPECT_LT(error(ours.master, reference.master), 1e-6) << what;
  EXPECT_LT(error(ours.m, reference.m), 1e-5) << what;
  EXPECT_LT(error(ours.v, reference.v), 1e-5) << what;
  if (reference.copy.defined()) {
    EXPECT_LT(error(ours.copy, reference.copy), 1e-3) << what;
  }
}

// No other GPU has the kernel: the pass that would call it leaves products and updates apart there.
class AdamWProductGpu : public testing::Test {
  void SetUp() override {
    SINTER_REQUIRE_GPU();
    if (!backend_of(DeviceType::cuda).info().hopper_kernels) GTEST_SKIP() << "the kernel is made for Hopper";
  }
};

TEST_F(AdamWProductGpu, RandomShapes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    int64_t batch = integer(rng, 1, 4), tokens = integer(rng, 1, 200), rows = 8 * integer(rng, 1, 60),
            columns = 8 * integer(rng, 1, 60);
    bool with_copy = integer(rng, 0, 2);
    Update cpu = random_update(batch, tokens, rows, columns, with_copy, seed), gpu = cpu.on(DeviceType::cuda),
           again = cpu.on(DeviceType::cuda);
    std::string what = fmt::format("seed {}: {} × {} tokens, {} × {}", seed, batch, tokens, rows, columns);
    cpu.run();
    gpu.run(seed % 3 ? 1 : 0.1);
    again.run();
    expect_close(gpu, cpu, what);
    EXPECT_TRUE(same_bits(to(again.master, DeviceType::cpu), to(gpu.master, DeviceType::cpu))) << what;
  }
}

TEST_F(AdamWProductGpu, ReadsRowsThatAreParts) {
  Update u = random_update(2, 100, 264, 136, true, 1);
  Update wide = u.on(DeviceType::cpu);
  // The same numbers as columns of wider tensors, the rest NaN.
  auto widened = [](const Tensor& t, int64_t extra) {
    Tensor w = empty(t.dims().with_last(t.size(-1) + extra), t.dtype(), DeviceType::cpu);
    fill(w, std::nan(""));
    copy_into(slice(w, 2, 0, t.size(-1)), t);
    return w;
  };
  wide.dy = widened(u.dy, 8), wide.x = widened(u.x, 64);
  Update gpu = wide.on(DeviceType::cuda);
  gpu.run(1, 264, 136);
  u.run();
  expect_close(gpu, u, "parts of rows");
}

TEST_F(AdamWProductGpu, LeavesEverythingWhenTheStepIsSkipped) {
  Update cpu = random_update(1, 64, 128, 128, true, 1);
  fill(slice(cpu.state, 0, state_skip, 1), 1);
  Update gpu = cpu.on(DeviceType::cuda);
  gpu.run();
  EXPECT_TRUE(same_bits(to(gpu.master, DeviceType::cpu), cpu.master));
  EXPECT_TRUE(same_bits(to(gpu.m, DeviceType::cpu), cpu.m));
  EXPECT_TRUE(same_bits(to(gpu.copy, DeviceType::cpu), cpu.copy));
}

}  // namespace
}  // namespace sinter
