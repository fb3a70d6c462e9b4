// The 16-bit copy of parameters: never stale, whoever writes the master, and cast only where it is.
#include "compile/compiled.h"
#include "nn/parameters.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "support/built.h"
#include "support/values.h"

namespace sinter {
namespace {

Values rounded(const Tensor& t, DType type) { return to_vector(cast(t.detach(), type)); }

TEST(LowCopy, StaysCurrent) {
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16)) << "from the start";
  AdamW optimizer(p, {});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto logits = [&] {
    Autocast mixed(DType::bf16);
    return b.model->logits(ids);
  };
  Values before = to_vector(p.master());
  for (int i = 0; i < 3; ++i) {
    p.zero_grad();
    backward(cross_entropy(logits(), ids));
    optimizer.step(0.01);
    EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16)) << "the optimizer writes both";
  }
  EXPECT_NE(to_vector(p.master()), before);

  NoGrad off;
  Values first = to_vector(logits());
  fill(p.find("head.weight").value, 0);  // someone loads a checkpoint
  Values second = to_vector(logits());
  EXPECT_NE(first, second);
  for (double x : second) ASSERT_EQ(x, 0) << "the product must not read the old copy";
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

struct CastCount : Interceptor {
  int parameters = 0;
  void called(const OpCall& used, TensorPtrs inputs, const Outputs&) override {
    parameters += std::string(used.op.name) == "cast" && leaf_of(*inputs[0]);
  }
};

TEST(LowCopy, IsALookupNotACast) {
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  CastCount count;
  Listening on(count);
  Autocast mixed(DType::bf16);
  Tensor loss = cross_entropy(b.model->logits(ids), ids);
  EXPECT_EQ(count.parameters, 0);
  backward(loss);
}

// Casts of parameters to refresh their copies, by elements.
struct CopiesMade : Interceptor {
  std::vector<int64_t> sizes;
  void called(const OpCall& used, TensorPtrs, const Outputs& outputs) override {
    if (std::string(used.op.name) == "cast" && outputs[0].same_storage(copy)) sizes.push_back(outputs[0].numel());
  }
  Tensor copy;
};

TEST(LowCopy, FollowsLoadsAlone) {
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto logits = [&] {
    NoGrad off;
    Autocast mixed(DType::bf16);
    return to_vector(b.model->logits(ids));
  };
  auto zero = [&](const char* name) { p.load("master", name, zeros(p.find(name).dims, DType::f32, DeviceType::cpu)); };
  CopiesMade made;
  made.copy = p.low_copy();
  Listening on(made);
  Values before = logits();
  EXPECT_EQ(made.sizes, std::vector<int64_t>{});

  zero("head.weight");
  for (double x : logits()) ASSERT_EQ(x, 0);
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{19 * 16})) << "eager: when it is read";
  logits();
  p.refresh_stale_low_copy();
  EXPECT_EQ(made.sizes.size(), 1u) << "once";

  made.sizes.clear();
  Versions copy{p, p.role("copy")};
  zero("layers.1.attn.q.weight");
  zero("layers.1.norm2.weight");
  zero("layers.2.ffn.w2.weight");
  p.refresh_stale_low_copy();
  EXPECT_EQ(copy.changed(), (Names{"layers.1", "layers.2"})) << "compiled: before the replay";
  int64_t with_padding = p.find("layers.1.norm2.weight").offset - p.find("layers.1.attn.q.weight").offset;
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{24 * 16, with_padding + 128}))
      << "w2; then q|k|v, which is one leaf, with its neighbour norm2";
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));

  made.sizes.clear();
  fill(p.find("layers.0.norm1.weight").value, 2);
  p.refresh_stale_low_copy();
  EXPECT_EQ(made.sizes, (std::vector<int64_t>{p.master().numel()})) << "an op does not say where: one cast of all";
}

TEST(LowCopy, OfWhatChangedBeforeALoadStaysStale) {
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  fill(p.find("layers.0.attn.o.weight").value, 0.25);
  p.load("master", "head.weight", zeros({19, 16}, DType::f32, DeviceType::cpu));
  p.load("master", "head.weight", full({19, 16}, 1, DType::f32, DeviceType::cpu));
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

TEST(LowCopy, ThatNoUpdateReachesIsNotCalledCurrent) {
  Parameters p({DeviceType::cpu, DType::f32, DType::bf16, 0});
  Tensor used = p.add({"used", {3}, {Init::ones, 0}}), unused = p.add({"unused", {3}, {Init::ones, 0}});
  p.add({"frozen", {3}, {Init::ones, 0}});
  p.freeze("frozen");
  p.allocate();
  AdamW optimizer(p, {});
  fill(p.find("unused").value, 3);
  fill(p.find("frozen").value, 4);
  backward(sum(square(used)));
  optimizer.step(0.1);
  p.refresh_stale_low_copy();
  EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
}

// A compiled step beside an eager one, with parameters written in every way in between.
TEST(LowCopy, StaysCurrentUnderACompiledStep) {
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  auto train = [&](bool compiled) {
    Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
    Parameters& p = b.parameters;
    AdamW optimizer(p, {});
    optimizer.allocate();
    auto step = [&](const std::vector<Tensor>& in) {
      Tensor loss = [&] {
        Autocast mixed(DType::bf16);
        return cross_entropy(b.model->logits(in[0]), in[0]);
      }();
      backward(loss);
      optimizer.step();
      p.zero_grad();
      return std::vector{loss.detach()};
    };
    compile::Compiled replayed(step, DeviceType::cpu);
    std::vector<void*> addresses;
    Values losses;
    for (int i = 0; i < 8; ++i) {
      if (i == 2) fill(p.find("head.weight").value, 0.01);
      if (i == 4) p.load("master", "layers.1.attn.v.weight", full({16, 16}, 0.1, DType::f32, DeviceType::cpu));
      if (i == 5) p.load("adamw.m", "head.weight", full({19, 16}, 0.1, DType::f32, DeviceType::cpu));
      if (i == 6) {
        std::vector<double> state = optimizer.state();
        state[state_lr] = 0.05;
        optimizer.load_state(state);
      }
      p.refresh_stale_low_copy();
      losses.push_back(item(compiled ? replayed({ids})[0] : step({ids})[0]));
      p.low_copy_is_current();
      for (const auto& r : p.roles()) {
        if (r.name == "gradient") continue;
        if (i == 0) addresses.push_back(r.flat().data());
        EXPECT_NE(std::find(addresses.begin(), addresses.end(), r.flat().data()), addresses.end()) << r.name;
      }
    }
    EXPECT_EQ(replayed.traces(), compiled ? 1u : 0u);
    EXPECT_EQ(to_vector(p.low_copy()), rounded(p.master(), DType::bf16));
    losses.push_back(norm(to_vector(p.master())));
    return losses;
  };
  EXPECT_EQ(train(true), train(false));
}

// A trace casts nothing: what it would have brought up to date stays stale, whether it is used or not.
TEST(LowCopy, IsNotMadeCurrentByATrace) {
  Built b = build(little_transformer(), {DeviceType::cpu, DType::f32, DType::bf16, 0});
  Parameters& p = b.parameters;
  AdamW optimizer(p, {});
  optimizer.allocate();
  Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6}, {1, 6}, DeviceType::cpu);
  fill(p.find("head.weight").value, 0);
  compile::trace(
      [&](const auto&) {
        Autocast mixed(DType::bf16);
        p.zero_grad();
        Tensor loss = cross_entropy(b.model->logits(ids), ids);
        backward(loss);
        optimizer.step();
        p.zero_grad();
        return std::vector{loss.detach()};
      },
      {}, DeviceType::cpu);
  NoGrad off;
  Autocast mixed(DType::bf16);
  for (double x : to_vector(b.model->logits(ids))) ASSERT_EQ(x, 0) << "the product must not read the old copy";
}

}  // namespace
}  // namespace sinter
