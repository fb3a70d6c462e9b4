// A compiled step is the eager step: same bits, whatever passes are on; and it says clearly what it cannot be.
#include "compile/compiled.h"

#include "autograd/tape.h"
#include "compile/lifetimes.h"
#include "compile/passes.h"
#include "support/random_program.h"

namespace sinter {
namespace {

using compile::Compiled;
using compile::CompileOptions;

constexpr DeviceType cpu = DeviceType::cpu;

Tensor values(const Dims& dims, uint64_t seed) {
  Rng rng(seed);
  return tensor_of(normals(rng, dims.numel()), dims, DType::f32);
}

TEST(Compiled, ReadsFreshInputsAndCapturedState) {
  Tensor w = values({3, 3}, 1);
  Compiled f([&](const auto& in) { return std::vector{matmul(in[0], w)}; }, cpu);
  for (uint64_t seed = 2; seed < 5; ++seed) {
    Tensor x = values({2, 3}, seed);
    EXPECT_TRUE(same_bits(f({x})[0], matmul(x, w)));
    fill(w, double(seed));
  }
  EXPECT_EQ(f.traces(), 1u);
}

TEST(Compiled, TracesAgainForAnotherShapeTypeOrPrecision) {
  int calls = 0;
  Compiled f([&](const auto& in) { return ++calls, std::vector{add(in[0], in[0])}; }, cpu);
  Tensor x = values({2, 3}, 1), y = values({4, 3}, 2);
  f({x}), f({x});
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(same_bits(f({y})[0], add(y, y)));
  EXPECT_EQ(calls, 2);
  f({cast(x, DType::bf16)});
  EXPECT_EQ(calls, 3);
  {
    Autocast lower(DType::bf16);
    f({x});
  }
  EXPECT_EQ(calls, 4);
  EXPECT_TRUE(same_bits(f({x})[0], add(x, x))) << "the first trace is still there";
  EXPECT_EQ(calls, 4);
}

TEST(Compiled, LeavesItsInputsAlone) {
  Tensor x = values({5}, 1), before = copy(x);
  Compiled f([&](const auto& in) { return std::vector{square(in[0])}; }, cpu);
  f({x});
  f({values({5}, 2)});
  EXPECT_TRUE(same_bits(x, before));
}

// Note [Windows]: without zero_grad() gradients add up, in a replay too.
TEST(Compiled, AccumulatesGradientsAsEagerDoes) {
  for (bool reset : {false, true}) {
    auto run = [&](bool compiled) {
      Tensor w = values({3}, 1), x = values({3}, 2);
      require_grad(w).grad = full({3}, NAN, DType::f32, cpu);
      auto step = [&](const auto&) {
        if (reset) zero_grad(w);
        Tensor loss = sum(mul(square(w), x));
        backward(loss);
        return std::vector{loss.detach()};
      };
      Compiled f(step, cpu);
      std::vector<Values> gradients;
      for (int i = 0; i < 5; ++i) {
        if (i == 3) zero_grad(w);  // from outside
        compiled ? void(f({})) : void(step(0));
        gradients.push_back(to_vector(grad_of(w)));
      }
      if (compiled) {
        EXPECT_EQ(f.traces(), reset ? 1u : 2u) << "the first of a window and a later one";
      }
      return gradients;
    };
    EXPECT_EQ(run(true), run(false)) << reset;
  }
}

// A leaf whose gradient has no place yet: refused, and eager mode finds the leaf as it was.
TEST(Compiled, LeavesLeavesAloneWhenItFails) {
  Tensor w = values({3}, 1);
  require_grad(w);
  auto step = [&](const auto&) {
    Tensor loss = sum(square(w));
    backward(loss);
    return std::vector{loss.detach()};
  };
  Compiled f(step, cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { f({}); }), {"kept", "eager step first"}));
  step(0);
  Values once = to_vector(grad_of(w));
  EXPECT_EQ(once, to_vector(affine(w.detach(), 2, 0)));
  zero_grad(w);
  f({});
  EXPECT_EQ(to_vector(grad_of(w)), once);
}

TEST(Compiled, RefusesWhatNeedsAValue) {
  Tensor x = values({4}, 1);
  Compiled reads([&](const auto& in) { return item(sum(in[0])) > 0 ? std::vector{in[0]} : std::vector{neg(in[0])}; },
                 cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { reads({x}); }), {"host", "traced", "eager"}));
  Compiled brings([&](const auto& in) { return std::vector{add(in[0], from_vector<float>({1}, {1}, cpu))}; }, cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { brings({x}); }), {"from the host", "traced"}));
  EXPECT_EQ(item(sum(add(x, x))), 2 * item(sum(x))) << "eager mode works as before";
}

TEST(Compiled, RefusesATensorThatOutlivesTheTrace) {
  Tensor kept, x = values({4}, 1);
  Compiled f([&](const auto& in) { return std::vector{kept = square(in[0])}; }, cpu);
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [&] { f({x}); }), {"square", "kept", "return"}));
}

TEST(Compiled, RefusesAnUnknownPass) {
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { compile::passes_named("dce+fold"); }),
                       {"fold", "dce", "plan", "graph"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { compile::passes_named(""); }), {"all", "none"}));
  EXPECT_TRUE(compile::passes_named("all").without.empty());
  EXPECT_EQ(compile::passes_named("none").without, compile::pass_names());
  EXPECT_EQ(compile::passes_named("cse+plan").without,
            (std::vector<std::string>{"dce", "flash", "causal", "fuse", "early", "lanes", "graph"}));
}

TEST(Passes, DropWhatNobodyReads) {
  Tensor x = values({8}, 1);
  Compiled f([&](const auto& in) { return exp(square(in[0])), std::vector{neg(in[0])}; }, cpu);
  EXPECT_TRUE(same_bits(f({x})[0], neg(x)));
  EXPECT_EQ(f.compilation().executable->graph().nodes.size(), 1u);
}

TEST(Passes, ComputeTheSameOnce) {
  Tensor x = values({8}, 1), w = copy(x);
  Compiled f([&](const auto& in) { return std::vector{add(exp(in[0]), exp(in[0]))}; }, cpu, {{"fuse"}});
  EXPECT_TRUE(same_bits(f({x})[0], add(exp(x), exp(x))));
  EXPECT_EQ(f.compilation().executable->graph().nodes.size(), 2u);
  // Not where what is read was written in between.
  Tensor state = copy(w);
  Compiled g(
      [&](const auto&) {
        Tensor a = exp(state);
        add_into(state, state);
        return std::vector{add(a, exp(state))};
      },
      cpu);
  EXPECT_TRUE(same_bits(g({})[0], add(exp(w), exp(add(w, w)))));
}

TEST(Passes, FuseNeighbouringPointwiseCalls) {
  Tensor x = values({3, 700}, 1), y = values({3, 700}, 2), s = values({1}, 3);
  auto f = [&](const auto& in) {
    Tensor a = mul(add(in[0], in[1]), s), b = tanh(a);
    return std::vector{sub(silu(b), a), b};
  };
  Compiled compiled(f, cpu);
  const std::vector<Tensor>& got = compiled({x, y});
  std::vector<Tensor> expected = f(std::vector{x, y});
  EXPECT_TRUE(same_bits(got[0], expected[0]));
  EXPECT_TRUE(same_bits(got[1], expected[1]));
  ASSERT_EQ(compiled.compilation().executable->graph().nodes.size(), 1u);
  const compile::Node& fused = compiled.compilation().executable->graph().nodes[0];
  EXPECT_EQ(fused.call.n_in, 3);
  EXPECT_EQ(fused.call.n_out, 2) << "only what is returned is stored";
  EXPECT_EQ(fused.bytes, 4 * (4 * 2100 + 1));
}

TEST(Passes, FuseThroughSixteenBitsWithoutRoundingInBetween) {
  Rng rng(4);
  Values v = normals(rng, 4096);
  Tensor x = tensor_of(v, {4096}, DType::bf16), wide = tensor_of(to_vector(x), {4096}, DType::f64);
  auto f = [](const auto& in) { return std::vector{mul(exp(affine(in[0], 0.3, 0.1)), square(in[0]))}; };
  Compiled compiled(f, cpu);
  Values exact = to_vector(f(std::vector{wide})[0]);
  double fused = normwise_error(to_vector(compiled({x})[0]), exact),
         eager = normwise_error(to_vector(f(std::vector{x})[0]), exact);
  EXPECT_LE(fused, eager);
}

TEST(Passes, FuseOnlyWhereTheOrderAllowsIt) {
  Tensor x = values({4, 4}, 1), state = values({4, 4}, 2), start = copy(state);
  auto f = [&](const auto& in) {
    Tensor a = exp(state);        // reads the state before …
    add_into(state, in[0]);       // … it changes,
    Tensor b = matmul(a, in[0]);  // and is read by a product in between
    return std::vector{add(mul(a, state), b)};
  };
  Tensor expected = f(std::vector{x})[0];
  copy_into(state, start);
  Compiled compiled(f, cpu);
  EXPECT_TRUE(same_bits(compiled({x})[0], expected));
  EXPECT_TRUE(same_bits(state, add(start, x)));
}

// Whatever is in use at the same time lies apart, and nothing begins beyond the end.
void expect_sound_plan(const compile::Graph& g) {
  std::vector<compile::Lifetime> life = compile::lifetimes(g);
  for (size_t a = 0; a < g.buffers.size(); ++a) {
    const compile::Buffer& x = g.buffers[a];
    if (x.external || !life[a].used()) continue;
    ASSERT_GE(x.offset, 0);
    ASSERT_LE(x.offset + x.bytes, x.over >= 0 ? g.buffers[size_t(x.over)].bytes : g.arena_bytes);
    for (size_t b = a + 1; b < g.buffers.size(); ++b) {
      const compile::Buffer& y = g.buffers[b];
      if (y.external || !life[b].used() || !life[a].meets(life[b]) || x.over != y.over) continue;
      ASSERT_TRUE(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset);
    }
  }
}

class RandomStep : public testing::TestWithParam<int> {};

// Forward and backward of random graphs: eager, and replayed with and without passes, twice each.
TEST_P(RandomStep, EqualsEagerBitForBit) {
  const std::vector<CompileOptions> variants = {{compile::pass_names()}, {{"cse"}}, {{"plan"}}, {}};
  for (int k = 0; k < 50; ++k) {
    uint64_t seed = uint64_t(GetParam()) * 50 + uint64_t(k) + 7000;
    Rng rng(seed);
    Program p = random_program(rng);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(p));
    std::vector<Tensor> leaves;
    for (const Dims& d : p.leaves) {
      leaves.push_back(tensor_of(normals(rng, d.numel()), d, DType::f32));
      require_grad(leaves.back()).grad = full(d, NAN, DType::f32, cpu);
    }
    auto step = [&](const auto&) {
      for (const Tensor& l : leaves) zero_grad(l);
      Tensor loss = loss_of(p, leaves);
      backward(loss);
      return std::vector{loss.detach()};
    };
    Tensor loss = step(0)[0];
    std::vector<Tensor> expected;
    for (const Tensor& l : leaves) expected.push_back(copy(grad_of(l).detach()));
    for (const CompileOptions& o : variants) {
      Compiled compiled(step, cpu, o);
      for (int run = 0; run < 2; ++run) {
        for (const Tensor& l : leaves) fill(grad_of(l), NAN);
        ASSERT_TRUE(same_bits(compiled({})[0], loss)) << "without " << o.without.size() << " passes, run " << run;
        for (size_t i = 0; i < leaves.size(); ++i)
          ASSERT_TRUE(same_bits(grad_of(leaves[i]), expected[i])) << "leaf " << i;
      }
      expect_sound_plan(compiled.compilation().executable->graph());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStep, testing::Range(0, 20));

}  // namespace
}  // namespace sinter
