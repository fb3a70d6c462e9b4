// The kernel that updates weights by gradients it never stores: CUDA's, and the CPU's for large GEMMs, against the
// CPU's that multiplies and updates one after the other, as it does where weights have 16-bit copies.
#include <cmath>
#include <fmt/format.h>

#include "backend/device.h"
#include "backend/workspace.h"
#include "core/folded_update.h"
#include "core/owned_call.h"
#include "ops/ops.h"
#include "support/gpu.h"
#include "support/threads.h"
#include "support/values.h"

namespace sinter {
namespace {

struct Update {
  Tensor dy, x, master, m, v, state, copy;

  Update on(DeviceType device) const {
    auto moved = [&](const Tensor& t) { return t.defined() ? to(t, device) : t; };
    return {moved(dy), moved(x), moved(master), moved(m), moved(v), moved(state), moved(copy)};
  }
};

// One call for all of them. dy and x may be the first columns of wider rows.
void run(const std::vector<Update*>& updates, double share = 1, int64_t columns_of_dy = 0, int64_t columns_of_x = 0) {
  DeviceType device = updates[0]->dy.device();
  OwnedCall call;
  auto add = [&](const Tensor& t) {
    if (t.defined()) call.add_input(t.ref());
  };
  add(updates[0]->state);
  for (Update* u : updates)
    for (const Tensor* t : {&u->dy, &u->x, &u->master, &u->m, &u->v, &u->copy}) add(*t);
  if (columns_of_dy) call.input(1).dims[call.in[1].rank - 1] = columns_of_dy;
  if (columns_of_x) call.input(2).dims[call.in[2].rank - 1] = columns_of_x;
  call.attrs = Attrs::of(AdamWProductAttrs{{.beta1 = 0.8, .weight_decay = 0.1}, share});
  call.stream = current_stream(device);
  call.workspace_bytes = workspace::adamw_product(call, device);
  Tensor scratch = empty({call.workspace_bytes + 1}, DType::u8, device);
  call.workspace = scratch.data();
  backend_of(device).kernels().adamw_product(call);
}

Update random_update(int64_t batch, int64_t tokens, int64_t rows, int64_t columns, bool with_copy, uint64_t seed,
                     DType type = DType::bf16) {
  auto normal = [&](Dims dims, DType type, uint64_t stream) {
    Tensor t = empty(dims, type, DeviceType::cpu);
    fill_normal(t, seed, stream, 1, 3);
    return t;
  };
  return {normal({batch, tokens, rows}, type, 1),
          normal({batch, tokens, columns}, type, 2),
          normal({rows, columns}, DType::f32, 3),
          normal({rows, columns}, DType::f32, 4),
          affine(square(normal({rows, columns}, DType::f32, 5)), 1,
                 0.01),  // of a root near 0 the quotient is ill-conditioned
          from_vector(std::vector<double>{3, 0.01, 1, 0, 0, 0.5, 0, 0}, {step_state_size}, DeviceType::cpu),
          with_copy ? zeros({rows, columns}, DType::bf16, DeviceType::cpu) : Tensor()};
}

Update copied(const Update& u) {
  return {copy(u.dy),
          copy(u.x),
          copy(u.master),
          copy(u.m),
          copy(u.v),
          copy(u.state),
          u.copy.defined() ? copy(u.copy) : Tensor()};
}
std::vector<Update*> pointers(std::vector<Update>& updates) {
  std::vector<Update*> all;
  for (Update& u : updates) all.push_back(&u);
  return all;
}

void expect_close(const Update& ours, const Update& reference, const std::string& what, double of_master = 1e-6) {
  auto error = [](const Tensor& a, const Tensor& b) { return normwise_error(to_vector(a), to_vector(b)); };
  EXPECT_LT(error(ours.master, reference.master), of_master) << what;
  EXPECT_LT(error(ours.m, reference.m), 1e-5) << what;
  EXPECT_LT(error(ours.v, reference.v), 1e-5) << what;
  if (reference.copy.defined()) {
    EXPECT_LT(error(ours.copy, reference.copy), 1e-3) << what;
  }
}

// No other GPU has the kernel: the pass that would call it leaves GEMMs and updates apart there.
class AdamWProductGpu : public testing::Test {
  void SetUp() override {
    SINTER_REQUIRE_GPU();
    if (!backend_of(DeviceType::cuda).info().hopper_kernels) GTEST_SKIP() << "the kernel is made for Hopper";
  }
};

TEST(AdamWProduct, SeveralWeightsAsOneByOne) {
  for (int weights = 1; weights <= max_folded; ++weights) {
    std::vector<Update> together, apart;
    for (int i = 0; i < weights; ++i) {
      Update u = random_update(2, 9, 8 * (1 + i), 40 - 8 * i, true, uint64_t(i));
      together.push_back(copied(u)), apart.push_back(u);
    }
    run(pointers(together));
    for (Update& u : apart) run({&u});
    for (int i = 0; i < weights; ++i) {
      EXPECT_TRUE(same_bits(together[size_t(i)].master, apart[size_t(i)].master)) << i << " of " << weights;
      EXPECT_TRUE(same_bits(together[size_t(i)].v, apart[size_t(i)].v)) << i << " of " << weights;
      EXPECT_TRUE(same_bits(together[size_t(i)].copy, apart[size_t(i)].copy)) << i << " of " << weights;
    }
  }
}

// Around the edges of tiles, of both ways to share out the work, and of the 2048 tokens that are
// summed at once: the same bits.
TEST(AdamWProduct, LargeAsOneAfterTheOther) {
  struct Shape {
    int64_t tokens, rows, columns;
  };
  std::vector<Shape> shapes{{512, 64, 128}, {512, 127, 65}, {513, 600, 70}, {70, 70, 900},
                            {70, 900, 70},  {2048, 70, 80}, {2049, 80, 70}, {4200, 65, 97}};
  Rng rng(21);
  while (shapes.size() < 40) {
    Shape s{integer(rng, 64, 800), integer(rng, 64, 300), integer(rng, 64, 300)};
    if (is_packed(s.rows, s.columns, s.tokens)) shapes.push_back(s);
  }
  for (const Shape& s : shapes) {
    std::string what = fmt::format("{} tokens, {} × {}", s.tokens, s.rows, s.columns);
    Update apart = random_update(1, s.tokens, s.rows, s.columns, true, uint64_t(s.tokens), DType::f32);
    Update tiles = copied(apart);
    tiles.copy = Tensor();
    run({&apart});
    for (int n : {1, 2, 7}) {
      Threads threads(n);
      Update u = copied(tiles);
      run({&u});
      EXPECT_TRUE(same_bits(u.master, apart.master) && same_bits(u.m, apart.m) && same_bits(u.v, apart.v))
          << what << ", " << n << " threads";
    }
  }
}

// From the m and v that it stored: each number of the update, not their norm. A wrong guess, or a step of
// Newton's too few, is 2^-12 off.
TEST(AdamWProduct, QuotientsAreNearlyExact) {
  Update u = random_update(1, 100, 64, 65, false, 5, DType::f32);
  fill(u.master, 0);
  run({&u});
  double lr = 0.01, step = 3;  // random_update's state, run()'s beta1
  double rate = float(lr / (1 - std::pow(0.8, step))), root = float(1 / std::sqrt(1 - std::pow(0.999, step)));
  Values p = to_vector(u.master), m = to_vector(u.m), v = to_vector(u.v);
  for (size_t i = 0; i < p.size(); ++i) {
    double exact = -rate * m[i] / (std::sqrt(v[i]) * root + double(float(1e-8)));
    EXPECT_LT(std::abs(p[i] - exact), 10 * std::ldexp(std::abs(exact), -24)) << i;
  }
}

// Where the square of the gradient's mean is nothing, or more than a number can be, and where it is none.
TEST(AdamWProduct, AtTheEndsOfNumbers) {
  for (float gradient : {0.0f, 1e-30f, 1e30f, INFINITY, NAN}) {
    Update u = random_update(1, 1, 20, 41, false, 1, DType::f32);
    fill(u.dy, gradient), fill(u.x, 1), fill(u.v, 0);
    Values p = to_vector(u.master), m = to_vector(u.m);
    run({&u});
    Values ours = to_vector(u.master);
    float g = 0.5f * gradient, v = 0.001f * g * g;  // random_update's state, run()'s beta1 and decay
    double rate = 0.01 / (1 - std::pow(0.8, 3)), root = 1 / std::sqrt(1 - std::pow(0.999, 3));
    for (size_t i = 0; i < ours.size(); ++i) {
      double moved = 0.8 * m[i] + 0.2 * double(g);
      double expected = (1 - 0.01 * 0.1) * p[i] - rate * moved / (std::sqrt(double(v)) * root + 1e-8);
      if (!std::isfinite(gradient)) EXPECT_TRUE(std::isnan(ours[i]) && std::isnan(expected)) << expected;
      else EXPECT_NEAR(ours[i], expected, 1e-5 * std::abs(expected) + 1e-6) << "gradient " << gradient;
    }
  }
}

TEST(AdamWProduct, LargeLeavesEverythingWhenTheStepIsSkipped) {
  Update u = random_update(1, 500, 100, 100, false, 2, DType::f32);
  u.state = from_vector(std::vector<double>{3, 0.01, 1, 0, 1, 0.5, 0, 0}, {step_state_size}, DeviceType::cpu);
  Update before = copied(u);
  run({&u});
  EXPECT_TRUE(same_bits(u.master, before.master) && same_bits(u.m, before.m) && same_bits(u.v, before.v));
}

TEST_F(AdamWProductGpu, RandomShapes) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    int64_t batch = integer(rng, 1, 4), tokens = integer(rng, 1, 200), weights = integer(rng, 1, max_folded);
    bool with_copy = weights > 1 || integer(rng, 0, 2);
    std::vector<Update> cpu, gpu, again;
    std::string what = fmt::format("seed {}: {} × {} tokens", seed, batch, tokens);
    for (int64_t i = 0; i < weights; ++i) {
      int64_t rows = 8 * integer(rng, 1, 60), columns = 8 * integer(rng, 1, 60);
      cpu.push_back(random_update(batch, tokens, rows, columns, with_copy, seed + 100 * uint64_t(i)));
      gpu.push_back(cpu.back().on(DeviceType::cuda)), again.push_back(cpu.back().on(DeviceType::cuda));
      what += fmt::format(", {} × {}", rows, columns);
    }
    run(pointers(cpu)), run(pointers(gpu), seed % 3 ? 1 : 0.1), run(pointers(again));
    for (size_t i = 0; i < cpu.size(); ++i) {
      expect_close(gpu[i], cpu[i], what);
      EXPECT_TRUE(same_bits(to(again[i].master, DeviceType::cpu), to(gpu[i].master, DeviceType::cpu))) << what;
    }
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
  run({&gpu}, 1, 264, 136);
  run({&u});
  expect_close(gpu, u, "parts of rows");
}

TEST_F(AdamWProductGpu, LeavesEverythingWhenTheStepIsSkipped) {
  Update cpu = random_update(1, 64, 128, 128, true, 1);
  fill(slice(cpu.state, 0, state_skip, 1), 1);
  Update gpu = cpu.on(DeviceType::cuda);
  run({&gpu});
  EXPECT_TRUE(same_bits(to(gpu.master, DeviceType::cpu), cpu.master));
  EXPECT_TRUE(same_bits(to(gpu.m, DeviceType::cpu), cpu.m));
  EXPECT_TRUE(same_bits(to(gpu.copy, DeviceType::cpu), cpu.copy));
}

}  // namespace
}  // namespace sinter
