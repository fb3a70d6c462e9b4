// A compiled step is the eager step: same bits, whatever passes are on; and it says clearly what it cannot be.
#include "compile/compiled.h"

#include "autograd/tape.h"
#include "compile/lifetimes.h"
#include "compile/passes.h"
#include "support/gpu.h"
#include "support/random_net.h"
#include "support/random_program.h"
#include "support/targets.h"

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
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { compile::passes_named("dce+nosuch"); }),
                       {"nosuch", "dce", "plan", "graph"}));
  EXPECT_TRUE(mentions(error_of(ErrorKind::usage, [] { compile::passes_named(""); }), {"all", "none"}));
  EXPECT_TRUE(
      mentions(error_of(ErrorKind::usage, [] { compile::passes_named("dce+plan+dce"); }), {"\"dce\"", "twice"}));
  EXPECT_TRUE(compile::passes_named("all").without.empty());
  EXPECT_EQ(compile::passes_named("none").without, compile::pass_names());
  std::vector<std::string> others = compile::pass_names();
  std::erase_if(others, [](const std::string& name) { return name == "cse" || name == "plan"; });
  EXPECT_EQ(compile::passes_named("cse+plan").without, others);
}

TEST(Passes, DropWhatNobodyReads) {
  Tensor x = values({8}, 1);
  Compiled f([&](const auto& in) { return exp(square(in[0])), std::vector{neg(in[0])}; }, cpu);
  EXPECT_TRUE(same_bits(f({x})[0], neg(x)));
  EXPECT_EQ(f.compilation().executable->graph().nodes.size(), 1u);
}

TEST(Passes, FoldConstants) {
  auto number = [](double v, const Dims& d = {}, DType t = DType::f32) { return full(d, v, t, cpu); };
  auto calls = [&](const std::function<Tensor(const Tensor&)>& f, DType type = DType::f32) {
    Tensor x = cast(from_vector<float>({-0.0f, 0.0f, 1.3f, -2.7e-39f, 3e38f, INFINITY, -5, 0.1f}, {2, 4}, cpu), type);
    Compiled compiled([&](const auto& in) { return std::vector{f(in[0])}; }, cpu, {{"fuse"}});
    EXPECT_TRUE(same_bits(compiled({x})[0], f(x)));
    return compiled.compilation().executable->graph().nodes;
  };
  // Constants alone: a fill of the result, also of one that is rounded on its way.
  auto folded = calls([&](const Tensor&) { return cast(exp(affine(number(0.3, {4}), 3, 0.1)), DType::bf16); });
  ASSERT_EQ(folded.size(), 1u);
  EXPECT_EQ(folded[0].op->name, std::string("fill"));
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (double c : {0.0, -0.0, 1.0, -1.0, 0.3, 2.0, 1e-30}) {
      for (const auto& f :
           std::vector<std::function<Tensor(const Tensor&)>>{[&](const Tensor& x) { return add(x, number(c, {}, t)); },
                                                             [&](const Tensor& x) { return sub(x, number(c, {4}, t)); },
                                                             [&](const Tensor& x) { return sub(number(c, {}, t), x); },
                                                             [&](const Tensor& x) {
                                                               return mul(number(c, {2, 4}, t), x);
                                                             }}) {
        EXPECT_EQ(calls(f).size(), 1u) << c;
        EXPECT_EQ(calls(f, t).size(), 1u) << c;
      }
      EXPECT_EQ(calls([&](const Tensor& x) { return div(x, number(c, {}, t)); }).size(),
                std::abs(c) == 1 || c == 2 ? 1u : 2u);
    }
  // What changes nothing is not done …
  EXPECT_EQ(calls([&](const Tensor& x) { return neg(mul(tanh(x), number(1))); }).size(), 2u);
  EXPECT_EQ(calls([&](const Tensor& x) { return neg(add(tanh(x), number(0))); }).size(), 3u) << "−0 becomes 0";
  // … unless it is a copy of what is changed later.
  Tensor state = values({4}, 1), start = copy(state);
  Compiled changed(
      [&](const auto&) {
        Tensor before = mul(state, number(1));
        add_into(state, state);
        return std::vector{sub(state, before)};
      },
      cpu);
  EXPECT_TRUE(same_bits(changed({})[0], start));
  // A tensor that is filled and then written to is no constant, nor is one that outlives the step.
  Tensor kept = full({4}, 2, DType::f32, cpu);
  Compiled written(
      [&](const auto& in) {
        Tensor t = number(0, {4});
        copy_into(slice(t, 0, 1, 2), slice(in[0], 0, 1, 2));
        return std::vector{add(mul(in[0], t), kept)};
      },
      cpu);
  for (double v : {2.0, 3.0}) {
    fill(kept, v);
    EXPECT_EQ(to_vector(written({full({4}, 3, DType::f32, cpu)})[0]), (Values{v, 9 + v, 9 + v, v}));
  }
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
    Tensor b = matmul(a, in[0]);  // and is read by a GEMM in between
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

// As for a GPU, but run here: the kernels' contract is the same.
TEST(Passes, LetProductsAdd) {
  Rng rng(3);
  for (DType type : {DType::f32, DType::bf16}) {
    Tensor x = random_tensor(rng, {3, 5, 16}, type), w = random_tensor(rng, {24, 16}, type);
    Tensor stream = random_tensor(rng, {3, 5, 24}, DType::f32);
    auto step = [&](const auto&) { return std::vector{add(stream, linear(x, w)), add(linear(x, w), linear(x, w))}; };
    compile::Graph g = compile::trace(step, {}, cpu);
    g.target = older_gpu();
    compile::passes::beta(g, {});
    ASSERT_EQ(g.nodes.size(), 3u) << "two sums, one with a product that has nothing to add to";
    compile::passes::plan(g, {});
    compile::Executable run(std::move(g), std::make_shared<compile::Arena>(cpu), false);
    run.run();
    std::vector<Tensor> eager = step(0);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(near(run.outputs()[i], eager[i], 4 * roundoff(type), 4 * roundoff(type)));
  }
}

TEST(Passes, FuseRowsWithTheirNeighbours) {
  MetaTarget target(hopper_gpu());
  auto meta = [](const Dims& d, DType t) { return empty(d, t, DeviceType::meta); };
  Tensor stream = meta({4, 64}, DType::f32), update = meta({4, 64}, DType::bf16), w = meta({64}, DType::f32);
  auto nodes = [&](const compile::Step& f, const std::vector<Tensor>& in) {
    Compiled compiled(f, DeviceType::meta);
    compiled(in);
    return compiled.compilation().executable->graph().nodes;
  };
  auto residual = nodes([&](const auto& in) { return std::vector{rms_norm(add(in[0], in[1]), w)}; }, {stream, update});
  ASSERT_EQ(residual.size(), 1u);
  EXPECT_EQ(residual[0].call.n_in, 3);
  EXPECT_EQ(residual[0].call.n_out, 1) << "neither the sum nor the root is needed by anybody else";
  EXPECT_EQ(nodes([&](const auto& in) { return std::vector{rms_norm(in[0], w)}; }, {stream})[0].op->name,
            std::string("rms_norm"))
      << "nothing to join: the op's own kernel";
  Tensor odd = meta({4, 63}, DType::f32), odd_w = meta({63}, DType::f32);
  EXPECT_EQ(nodes([&](const auto& in) { return std::vector{rms_norm(add(in[0], in[0]), odd_w)}; }, {odd}).size(), 2u)
      << "rows that no vector access fits";
  auto half = nodes([&](const auto& in) { return std::vector{mul(swiglu(in[0]), in[1])}; },
                    {meta({4, 128}, DType::bf16), update});
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half[0].call.n_in, 3) << "gate, up, factor";
}

void expect_fused_on_gpu(const Net& net, uint64_t seed) {
  std::vector<Tensor> leaves = leaves_of(net, seed, false, DeviceType::cuda);
  compile::Step step = step_of(net, leaves);
  std::vector<Values> eager = results(leaves, step({})[0]), exact;
  bool narrow = std::any_of(net.types.begin(), net.types.end(), [](DType t) { return t != DType::f32; });
  if (narrow) {
    std::vector<Tensor> wide = leaves_of(net, seed, true);
    exact = results(wide, step_of(net, wide)({})[0]);
  }
  for (bool fused : {false, true}) {
    Compiled compiled(step, DeviceType::cuda,
                      fused ? CompileOptions{} : CompileOptions{{"join", "beta", "fuse", "rows", "fold"}});
    for (int run = 0; run < 3; ++run) {
      for (const Tensor& l : leaves) fill(grad_of(l), NAN);
      std::vector<Values> got = results(leaves, compiled({})[0]);
      for (size_t i = 0; i < got.size(); ++i) {
        if (!fused) {
          EXPECT_EQ(got[i], eager[i]) << "replay, result " << i;
        } else if (!narrow) {
          EXPECT_LE(normwise_error(got[i], eager[i]), 1e-5) << "fused, result " << i;
        } else {
          EXPECT_LE(normwise_error(got[i], exact[i]), 2 * (normwise_error(eager[i], exact[i]) + roundoff(DType::bf16)))
              << "fused, result " << i;
        }
      }
    }
  }
}

TEST(RandomStepGpu, EagerReplayAndFusedAgree) {
  SINTER_REQUIRE_GPU();
  const Dims shapes[] = {{3, 5}, {2, 9, 20}, {64, 96}, {2, 1024, 768}, {700, 1280}, {3, 12000}};
  for (uint64_t i = 0; i < 36; ++i) {
    SCOPED_TRACE("seed " + std::to_string(500 + i));
    Rng rng(500 + i);
    expect_fused_on_gpu(
        random_net(rng, shapes[i % 6], std::array{DType::f32, DType::bf16, DType::f16}[i / 6 % 3], i % 4 != 0),
        500 + i);
  }
}

}  // namespace
}  // namespace sinter
